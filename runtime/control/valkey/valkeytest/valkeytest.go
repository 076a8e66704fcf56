// Package valkeytest runs a real Valkey or Redis server for tests, whichever is installed.
package valkeytest

import (
	"bufio"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/runtime/control/reserve"
	"github.com/kvferry/kvferry/runtime/control/valkey/server"
)

// A Server keeps its port while it is down. What it kept is gone when it starts again.
type Server struct {
	t    testing.TB
	port *reserve.Port
	more []string // arguments
	run  *exec.Cmd
}

// Start starts one that ends with the test, with these arguments beside its own, and returns when it serves.
func Start(t testing.TB, more ...string) *Server {
	t.Helper()
	return start(t, func(uint16) []string { return more })
}

// start starts one with arguments that may name its port.
func start(t testing.TB, more func(port uint16) []string) *Server {
	t.Helper()
	port, err := reserve.Open("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, port: port, more: more(port.Addr().Port)}
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
	path, name, err := server.Find()
	if err != nil {
		s.t.Fatalf("%v; make test-setup installs it", err)
	}
	s.run = exec.Command(path, append([]string{"--port", strconv.Itoa(int(s.Port())), "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", s.t.TempDir(), "--daemonize", "no", "--logfile", "",
		"--repl-diskless-sync-delay", "0"}, s.more...)...)
	s.run.Args[0] = name
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

// Do has it carry out a command, and gives the first line of its answer without the line's kind.
func (s *Server) Do(words ...string) string {
	s.t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte(strings.Join(words, " ") + "\r\n")); err != nil {
		s.t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || line[0] == '-' {
		s.t.Fatalf("%q: %q, %v", words, line, err)
	}
	return strings.TrimSpace(line[1:])
}

// Follow has it be a copy of another one, and returns when it is.
func (s *Server) Follow(of *Server) {
	s.t.Helper()
	s.Do("REPLICAOF", "127.0.0.1", strconv.Itoa(int(of.Port())))
	for of.Do("WAIT", "1", "1000") != "1" {
	}
}

// Lead ends Follow: it goes on by itself with what it has.
func (s *Server) Lead() {
	s.t.Helper()
	s.Do("REPLICAOF", "NO", "ONE")
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
