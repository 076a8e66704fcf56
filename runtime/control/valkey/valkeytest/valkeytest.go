// Package valkeytest runs a real server for tests: Debian's redis-server, or valkey-server where that is installed.
package valkeytest

import (
	"bufio"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/runtime/control/reserve"
)

// A Server keeps its port while it is down. What it kept is gone when it starts again.
type Server struct {
	t    testing.TB
	port *reserve.Port
	run  *exec.Cmd
}

// Start starts one that ends with the test, and returns when it serves.
func Start(t testing.TB) *Server {
	t.Helper()
	port, err := reserve.Open("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, port: port}
	t.Cleanup(func() {
		s.Kill()
		_ = port.Close()
	})
	s.Again()
	return s
}

// Port is where it listens.
func (s *Server) Port() uint16 { return s.port.Addr().Port }

// Addr is the same as host:port.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(int(s.Port())) }

// Again starts it after a Kill.
func (s *Server) Again() {
	s.t.Helper()
	name, err := exec.LookPath("valkey-server")
	if err != nil {
		name, err = exec.LookPath("redis-server")
	}
	if err != nil {
		s.t.Fatalf("%v; make test-setup installs it", err)
	}
	s.run = exec.Command(name, "--port", strconv.Itoa(int(s.Port())), "--bind", "127.0.0.1", "--save", "", "--appendonly",
		"no",
		"--dir", s.t.TempDir(), "--daemonize", "no", "--logfile", "")
	s.run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.run.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.run.Start(); err != nil {
		s.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for said := []string{}; ; said = append(said, lines.Text()) {
		if !lines.Scan() {
			s.t.Fatalf("the server does not serve:\n%s", strings.Join(said, "\n"))
		}
		if strings.Contains(strings.ToLower(lines.Text()), "ready to accept connections") {
			break
		}
	}
	go func() {
		for lines.Scan() { // Nobody reads them, and it is not to wait for that.
		}
	}()
}

// Kill has it end at once, with all that it kept.
func (s *Server) Kill() {
	if s.run != nil {
		_ = s.run.Process.Kill()
		_ = s.run.Wait() // It says that it was killed.
		s.run = nil
	}
}

// Stop has it do nothing until Continue.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Continue ends Stop.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.run.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}
