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

// A Server is a server process. The port stays reserved while the server is down; the data are lost with the process.
type Server struct {
	t    testing.TB
	port *reserve.Port
	args []string // arguments
	cmd  *exec.Cmd
}

// Start starts a server that ends with the test, with additional arguments, and returns when the server accepts
// connections.
func Start(t testing.TB, more ...string) *Server {
	t.Helper()
	return startServer(t, func(uint16) []string { return more })
}

// startServer starts a server with arguments that may name the port.
func startServer(t testing.TB, args func(port uint16) []string) *Server {
	t.Helper()
	port, err := reserve.Open("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, port: port, args: args(port.Addr().Port)}
	t.Cleanup(func() {
		s.Kill()
		_ = port.Close()
	})
	s.Restart()
	return s
}

// Port returns the port that the server listens on.
func (s *Server) Port() uint16 { return s.port.Addr().Port }

// Addr returns the server's address as host:port.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(int(s.Port())) }

// Restart starts the server again after a Kill, without data.
func (s *Server) Restart() {
	s.t.Helper()
	path, name, err := server.FindProgram()
	if err != nil {
		s.t.Fatalf("%v; make test-setup installs it", err)
	}
	s.cmd = exec.Command(path, append([]string{"--port", strconv.Itoa(int(s.Port())), "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", s.t.TempDir(), "--daemonize", "no", "--logfile", "",
		"--repl-diskless-sync-delay", "0"}, s.args...)...)
	s.cmd.Args[0] = name
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for output := []string{}; ; output = append(output, lines.Text()) {
		if !lines.Scan() {
			s.t.Fatalf("the server does not serve:\n%s", strings.Join(output, "\n"))
		}
		if strings.Contains(strings.ToLower(lines.Text()), "ready to accept connections") {
			break
		}
	}
	go func() {
		for lines.Scan() { // drain the output so that the server never blocks on it
		}
	}()
}

// Kill ends the server at once; the data are lost.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // the error says that it was killed
		s.cmd = nil
	}
}

// DoCommand sends a command and returns the first line of the reply without the type byte.
func (s *Server) DoCommand(words ...string) string {
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

// ReplicateFrom makes the server a replica of another server, and returns when all data have arrived.
func (s *Server) ReplicateFrom(primary *Server) {
	s.t.Helper()
	s.DoCommand("REPLICAOF", "127.0.0.1", strconv.Itoa(int(primary.Port())))
	for primary.DoCommand("WAIT", "1", "1000") != "1" {
	}
}

// BecomePrimary ends the replication: the server continues as a primary with the present data.
func (s *Server) BecomePrimary() {
	s.t.Helper()
	s.DoCommand("REPLICAOF", "NO", "ONE")
}

// Suspend freezes the server until Resume.
func (s *Server) Suspend() { s.sendSignal(syscall.SIGSTOP) }

// Resume lets a suspended server continue.
func (s *Server) Resume() { s.sendSignal(syscall.SIGCONT) }

func (s *Server) sendSignal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}
