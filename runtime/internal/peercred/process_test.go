package peercred

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMain is also the main function of the process that connects, reports that it has, and waits.
func TestMain(m *testing.M) {
	if to := os.Getenv("PEERCRED_CONNECT"); to != "" {
		conn, err := net.Dial("unix", to)
		if err != nil {
			os.Exit(1)
		}
		_, _ = conn.Write([]byte{1})
		_, _ = conn.Read(make([]byte, 1)) // until it is killed
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestGoneReportsTheEndOfAProcess(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "PEERCRED_CONNECT="+listener.Addr().String())
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }()
	defer func() { _ = child.Process.Kill() }()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p, err := ProcessOf(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.PID != child.Process.Pid {
		t.Errorf("process %d, want %d", p.PID, child.Process.Pid)
	}
	if gone, err := p.HasEnded(); gone || err != nil {
		t.Fatalf("gone %v, %v, while it waits", gone, err)
	}
	told := make(chan error, 1)
	go func() { told <- p.AwaitEnd(t.Context()) }()
	_ = child.Process.Kill()
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	if gone, err := p.HasEnded(); !gone || err != nil {
		t.Errorf("gone %v, %v, when it was killed", gone, err)
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	_, conn := socketEnds(t)
	p, err := ProcessOf(conn) // our own process
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan error, 1)
	go func() { told <- p.AwaitEnd(ctx) }()
	cancel()
	if err := <-told; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
