package secure_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/secure"
)

// A connection with an owner for its end is not closed by the guard when its peer is refused. The owner is called once.
func TestOwnersEndRefusedConnections(t *testing.T) {
	f := newFleet(t)
	config := f.configOf("spiffe://fleet/decode/7", secure.Strict)
	server := f.open(config)
	client, atServer := connect(t, f.guard("spiffe://fleet/prefill/3", secure.Strict), server, secure.FaceControl, effects.RoleDecode)
	if client.err != nil || atServer.err != nil {
		t.Fatal(client.err, atServer.err)
	}
	refused := make(chan error, 2)
	if !atServer.conn.(*secure.Conn).OnRefused(func(err error) { refused <- err }) {
		t.Fatal("the connection has ended before")
	}
	policy := strings.ReplaceAll(string(f.policy), "spiffe://fleet/prefill/*", "spiffe://fleet/prefill/4")
	if err := os.WriteFile(config.Policy, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	reload(t, server, func(s secure.Stats) bool { return s.Ended == 1 })
	if err := <-refused; !strings.Contains(err.Error(), "no role") {
		t.Errorf("refused because: %v", err)
	}
	server.Reload()
	if _, err := atServer.conn.Write([]byte("x")); err != nil {
		t.Errorf("the guard has closed the connection: %v", err)
	}
	if _, err := client.conn.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	time.Sleep(10 * time.Millisecond) // A second call would come with the next look at the files.
	if s := server.Stats(); len(refused) > 0 || s.Open != 0 || s.Ended != 1 {
		t.Errorf("called %d times more; %+v", len(refused), s)
	}
	if err := atServer.conn.Close(); err != nil {
		t.Error(err)
	}
}

// A connection that the guard has closed tells an owner that comes late.
func TestLateOwnerOfAnEnd(t *testing.T) {
	f := newFleet(t)
	config := f.configOf("spiffe://fleet/decode/7", secure.Strict)
	server := f.open(config)
	_, atServer := connect(t, f.guard("spiffe://fleet/prefill/3", secure.Strict), server, secure.FaceControl, effects.RoleDecode)
	f.clock.advance(50 * time.Minute)
	if err := f.WriteFolder(strings.TrimSuffix(config.Cert, "/tls.crt"), "spiffe://fleet/decode/7", f.policy); err != nil {
		t.Fatal(err)
	}
	f.clock.advance(10*time.Minute + secure.ExpiryGrace + time.Second)
	reload(t, server, func(s secure.Stats) bool { return s.Ended == 1 })
	if atServer.conn.(*secure.Conn).OnRefused(func(error) { t.Error("called") }) {
		t.Error("the owner believes that the connection is open")
	}
}

// Only the end of the TCP connection is an end. What TLS takes for one is none.
func TestAwaitEnd(t *testing.T) {
	for name, send := range map[string]func(conn *secure.Conn) error{
		"an alert about the end": func(conn *secure.Conn) error { return conn.Conn.CloseWrite() },
		"no TLS": func(conn *secure.Conn) error {
			_, err := io.WriteString(secure.Beneath(conn), strings.Repeat("x", 100))
			return err
		},
		"nothing": func(*secure.Conn) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			client, atServer := connect(t, f.guard("spiffe://fleet/prefill/3", secure.Strict), f.guard("spiffe://fleet/decode/7", secure.Strict),
				secure.FaceControl, effects.RoleDecode)
			if client.err != nil || atServer.err != nil {
				t.Fatal(client.err, atServer.err)
			}
			conn := client.conn.(*secure.Conn)
			if err := send(conn); err != nil {
				t.Fatal(err)
			}
			_ = atServer.conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			if _, err := atServer.conn.Read(make([]byte, 1)); err == nil {
				t.Fatal("there is something to read")
			}
			ended := make(chan error, 1)
			go func() { ended <- atServer.conn.(*secure.Conn).AwaitEnd() }()
			select {
			case err := <-ended:
				t.Errorf("the connection has ended as %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, io.EOF) {
				t.Errorf("the connection has ended as %v", err)
			}
			if _, isTCP := secure.Beneath(conn).(*net.TCPConn); !isTCP {
				t.Errorf("beneath is a %T", secure.Beneath(conn))
			}
		})
	}
}
