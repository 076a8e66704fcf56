//go:build cgo && linux

package directory_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/valkey"
	"github.com/kvferry/kvferry/runtime/control/valkey/valkeytest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
)

// fileOfChild makes this test's process be a directory, with the variable's value as its file.
const fileOfChild = "KVFERRY_TEST_DIRECTORY"

// serveAlone is such a process. It ends with its standard input.
func serveAlone(file string) error {
	cfg, err := config.ParseDirectory("f", []byte(file), nil)
	if err != nil {
		return err
	}
	opener := valkey.WithLog(zmq.Config{}.Opener(), valkey.Config{Stream: cfg.Shared.Stream})
	if _, err := directory.Open(cfg, opener, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	fmt.Println("serving")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// child starts such a process and returns when it serves.
func child(b *testing.B, file string) *exec.Cmd {
	b.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), fileOfChild+"="+file)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := c.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "serving\n" {
		b.Fatal(line, err)
	}
	return c
}

// BenchmarkDeath kills one of two directories that share a log, starts it again, and queries it until it answers like
// the other one. Both are processes of their own and know 100,000 chunks that workers reported to the one that is
// killed.
func BenchmarkDeath(b *testing.B) {
	log := ", log: '" + valkeytest.Start(b).Addr() + "'}}}\n"
	file := func() string { return freePorts(b, 1) + "extra_config: {kvferry: {directory: {syncs: 16" + log }
	files := []string{file(), file()}
	ports := func(file string) config.MonitorPorts {
		cfg, err := config.ParseDirectory("f", []byte(file), nil)
		if err != nil {
			b.Fatal(err)
		}
		return cfg.Monitors[0]
	}
	dies, other := child(b, files[0]), child(b, files[1])
	end := func(c *exec.Cmd) {
		_ = c.Process.Kill()
		_ = c.Wait() // It says that it was killed.
	}
	b.Cleanup(func() { end(dies); end(other) })
	const instances, chunks = 10, 10_000
	for i := range instances {
		w := newWorker(b, ports(files[0]), fmt.Sprint("instance-", i), 0)
		w.register()
		for from := 0; from < chunks; from += 1000 {
			keys := make([]uint64, 1000)
			for k := range keys {
				keys[k] = uint64(i*chunks + from + k + 1)
			}
			w.tell(w.operations("admit", from, keys...))
		}
	}
	agrees := func(w *worker) {
		for i := range instances {
			last := uint64((i + 1) * chunks)
			w.finds(fmt.Sprint("instance-", i), 2, last-1, last)
		}
	}
	agrees(newWorker(b, ports(files[1]), "asks", 0))
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		end(dies)
		dies = child(b, files[0])
		agrees(newWorker(b, ports(files[0]), "asks", 0))
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "ms-median")
	b.ReportMetric(float64(took[len(took)-1].Milliseconds()), "ms-longest")
}
