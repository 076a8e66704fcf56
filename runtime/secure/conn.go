package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/kvferry/kvferry/effects"
)

// A Face is a protocol that connections carry. It is negotiated in the handshake, so that a connection that an attacker
// redirects to another port is refused there.
type Face string

// The faces.
const (
	FaceControl Face = "control" // ZeroMQ's protocol
	FaceData    Face = "data"    // the links of data planes
)

func (f Face) protocol() string { return "kvferry-" + string(f) }

// tlsHandshake is the first byte of a TLS connection: the type of a record with a part of a handshake.
const tlsHandshake = 0x16

// ErrPlain is the error of Accept for a plain connection in mode Strict.
var ErrPlain = errors.New("the connection is not encrypted, and security.mode is strict: set security.mode to permissive or strict at " +
	"the peer, or, if the peer has no TLS at all, list its network in security.plain")

// A Conn is an authenticated connection.
type Conn struct {
	*tls.Conn
	guard   *Guard
	below   *bulkConn
	peer    Peer
	chain   []*x509.Certificate // of the peer, its own certificate first
	checked *credentials        // with which the peer was accepted last

	// The fields below are guarded by the guard's mutex.
	onRefused func(reason error) // set by OnRefused
	ended     bool               // the guard has closed the connection, or has called onRefused
}

// Close closes the connection without TLS's alert about the end, because sending the alert could block. The alert would
// prove to the peer that no byte is missing, but each message of our protocols states its length.
func (c *Conn) Close() error {
	c.guard.mu.Lock()
	delete(c.guard.conns, c)
	c.guard.mu.Unlock()
	return c.below.Close()
}

// OnRefused makes the guard call f, once and from its own goroutine, instead of closing the connection when the peer is
// not authorized any more or its certificate has ended. The caller then stops using the connection, and closes it when
// the end of the connection tells the peer nothing wrong. The result is false if the guard has closed the connection
// already.
//
// The end of some connections is a proof (rule M4 of docs/safety.md): the peer's kernel ends them only when the peer's
// process has ended its part. A guard that closed such a connection would give the other end a false proof.
func (c *Conn) OnRefused(f func(reason error)) bool {
	c.guard.mu.Lock()
	defer c.guard.mu.Unlock()
	c.onRefused = f
	return !c.ended
}

// AwaitEnd reads and discards whatever the peer still sends, and returns how the TCP connection beneath TLS ended: io.EOF
// if the peer's kernel has closed it, or the error of the socket. Neither an alert of TLS, an alert about the end
// included, nor an error in the records is an end, nor a deadline that passes. AwaitEnd belongs to the goroutine that
// reads, which must not call Read afterwards, and is not for connections with StartBulk.
func (c *Conn) AwaitEnd() error { return c.below.awaitEnd() }

// Beneath returns the connection beneath TLS, or conn itself if it is plain.
func Beneath(conn net.Conn) net.Conn {
	if c, ok := conn.(*Conn); ok {
		return c.below.Conn
	}
	return conn
}

// SetReadBuffer sets the size of the kernel's buffer of received bytes.
func (c *Conn) SetReadBuffer(n int) error { return setBuffer(c.below.Conn, n, true) }

// SetWriteBuffer sets the size of the kernel's buffer of bytes to send.
func (c *Conn) SetWriteBuffer(n int) error { return setBuffer(c.below.Conn, n, false) }

// CloseWrite ends the direction to the peer without TLS's alert about the end, for the same reason as Close: the alert
// would wait for a Write that is in progress.
func (c *Conn) CloseWrite() error {
	half, ok := c.below.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

func setBuffer(conn net.Conn, n int, reading bool) error {
	b, ok := conn.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	})
	switch {
	case !ok:
		return errors.ErrUnsupported
	case reading:
		return b.SetReadBuffer(n)
	}
	return b.SetWriteBuffer(n)
}

// Accept authenticates the client of a connection that a listener accepted, and returns the connection to use from now
// on. The caller bounds the time, by a deadline of conn or by closing it. Accept closes nothing.
//
// The roles are those of which the caller requires one. Accept refuses no client for its roles, because the caller can
// answer with the reason. Mode Permissive logs a client without them, and returns it with all roles.
func (g *Guard) Accept(conn net.Conn, f Face, roles effects.Roles) (net.Conn, Peer, error) {
	x := g.credentials()
	if x == nil {
		return conn, g.plainPeer(), nil
	}
	first, err := peekByte(conn)
	if err != nil {
		return nil, Peer{}, err
	}
	if first != tlsHandshake {
		if g.config.Mode == Strict {
			return g.admitPlain(conn, f)
		}
		g.countPlain("a client connected without TLS, which security.mode strict would refuse", conn.RemoteAddr())
		return conn, g.plainPeer(), nil
	}
	c := &Conn{guard: g, below: newBulkConn(conn)}
	config := x.tlsConfig(f)
	config.ClientAuth = tls.RequireAnyClientCert
	config.VerifyConnection = func(s tls.ConnectionState) error {
		if g.config.Mode == Strict {
			roles = effects.AllRoles
		}
		return c.admitPeer(x, s, f, x509.ExtKeyUsageClientAuth, roles)
	}
	c.Conn = tls.Server(c.below, config)
	return g.finish(c, c.Handshake())
}

// admitPlain accepts a connection without TLS in mode Strict if it is a control connection from a listed network.
func (g *Guard) admitPlain(conn net.Conn, f Face) (net.Conn, Peer, error) {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	contains := func(network netip.Prefix) bool { return network.Contains(at.Addr().Unmap().WithZone("")) }
	if err != nil || f != FaceControl || !slices.ContainsFunc(g.config.Plain, contains) {
		g.stats.refused.Add(1)
		return nil, Peer{}, ErrPlain
	}
	g.countPlain("a client without TLS is accepted, because security.plain lists its network", conn.RemoteAddr())
	peer := unprovenPeer
	peer.Roles = effects.RolePrefill | effects.RoleDecode
	return conn, peer, nil
}

// Connect authenticates the server to which conn was made, and returns the connection to use from now on. The server
// must have one of the given roles. The error wraps ErrNoTLS if the server answered without TLS, and the error of the
// socket if the server closed the connection. The connection cannot be used for anything else after an error, and
// Connect has closed it.
func (g *Guard) Connect(ctx context.Context, conn net.Conn, f Face, roles effects.Roles) (net.Conn, Peer, error) {
	x := g.credentials()
	if x == nil {
		return conn, g.plainPeer(), nil
	}
	c := &Conn{guard: g, below: newBulkConn(conn)}
	config := x.tlsConfig(f)
	// The server's identity is compared with the policy instead of with the name that was dialled, because peers are
	// dialled by addresses that other processes told.
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(s tls.ConnectionState) error {
		return c.admitPeer(x, s, f, x509.ExtKeyUsageServerAuth, roles)
	}
	c.Conn = tls.Client(c.below, config)
	err := c.HandshakeContext(ctx)
	secured, peer, err := g.finish(c, err)
	if err != nil {
		_ = conn.Close()
		var header tls.RecordHeaderError
		switch {
		case errors.As(err, &header):
			err = ErrNoTLS
		case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
			// Nothing is known about the server: while many strangers connect, it closes connections to make room. A
			// client that connected to it without TLS would have lost the identity under which the server knows it.
			err = fmt.Errorf("the server closed the connection: it is overloaded, or ends, or its security.mode is off: %w", err)
		}
	}
	return secured, peer, err
}

// ErrNoTLS is the error of Connect for a server that does not speak TLS. A control server greets at once, and a data
// plane answers by RefuseTLS.
var ErrNoTLS = errors.New("the server answered without TLS: its security.mode is off, or it is no server of kvferry")

// IsTLS reports whether the first bytes of a connection begin a TLS handshake.
func IsTLS(first []byte) bool { return len(first) > 1 && first[0] == tlsHandshake && first[1] == 3 }

// RefuseTLS tells a client that this server does not speak TLS. It then reads what the client still sends, because
// closing a connection with unread bytes could destroy the answer.
func RefuseTLS(conn net.Conn) {
	if _, err := io.WriteString(conn, "kvferry: no TLS here\n"); err == nil {
		_, _ = io.CopyN(io.Discard, conn, maxHandshakeBytes)
	}
}

// CountPlain counts and logs a connection that a client made without TLS, in mode Permissive, and returns the peer that
// the server is.
func (g *Guard) CountPlain(server net.Addr) Peer {
	g.countPlain("this process connects to a server without TLS, which security.mode strict would refuse", server)
	return g.plainPeer()
}

func (g *Guard) countPlain(cause string, peer net.Addr) {
	g.stats.plain.Add(1)
	g.limitedLog.Warn(cause, hostOf(peer), "peer", peer)
}

// hostOf returns the address of a peer without the port, by which the rate of log lines is limited.
func hostOf(peer net.Addr) string {
	host, _, err := net.SplitHostPort(peer.String())
	if err != nil {
		return peer.String()
	}
	return host
}

// finish registers a connection whose handshake has ended.
func (g *Guard) finish(c *Conn, err error) (net.Conn, Peer, error) {
	c.below.handshakeDone()
	if err != nil {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			g.stats.refused.Add(1)
		}
		return nil, Peer{}, fmt.Errorf("TLS handshake: %w", err)
	}
	g.mu.Lock()
	g.conns[c] = struct{}{}
	g.rememberName(&c.peer)
	g.mu.Unlock()
	return c, c.peer, nil
}

// admitPeer verifies the peer of a handshake, which must have one of the given roles. Mode Permissive accepts every peer
// that mode Off accepts, and logs a peer that mode Strict would refuse.
func (c *Conn) admitPeer(x *credentials, s tls.ConnectionState, f Face, usage x509.ExtKeyUsage, roles effects.Roles) (err error) {
	if s.NegotiatedProtocol != f.protocol() {
		return fmt.Errorf("the peer does not speak %s over TLS", f.protocol())
	}
	now := c.guard.config.Now()
	c.chain, c.checked = s.PeerCertificates, x
	c.peer, err = x.verify(c.chain, usage, now)
	if err == nil && !c.peer.Roles.Has(roles) {
		err = fmt.Errorf("the peer is %q with the roles %v; it must be one of %v", c.peer.Name, c.peer.Roles, roles)
	}
	if c.guard.config.Mode != Permissive {
		return err
	}
	believed, proven := x.believe(c.chain, now, c.guard.config.ProvenChunks)
	if c.peer = believed; !proven {
		c.peer = c.guard.plainPeer()
	}
	if err != nil {
		c.guard.stats.doubtful.Add(1)
		c.guard.limitedLog.Warn("security.mode strict would refuse a peer", c.logName(), "peer", c.below.RemoteAddr(), "err", err)
	}
	return nil
}

// logName returns the name by which the rate of log lines about the peer is limited: the identity in the peer's
// certificate, whether it is valid or not, or the address.
func (c *Conn) logName() string {
	if len(c.chain) > 0 {
		if name, err := IdentityOf(c.chain[0]); err == nil && len(name) <= maxLoggedName {
			return name
		}
	}
	return hostOf(c.below.RemoteAddr())
}

// maxLoggedName is the length of the longest identity that is kept to limit the rate of log lines.
const maxLoggedName = 256

// peekByte returns the first byte that the peer sends, and leaves it in the socket.
func peekByte(conn net.Conn) (byte, error) {
	of, ok := conn.(syscall.Conn)
	if !ok {
		return 0, fmt.Errorf("%T is not a socket", conn)
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return 0, err
	}
	var first [1]byte
	n, peekErr := 0, error(nil)
	if err := raw.Read(func(fd uintptr) bool {
		for {
			n, _, peekErr = syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if peekErr != syscall.EINTR {
				return peekErr != syscall.EAGAIN
			}
		}
	}); err != nil {
		return 0, err
	}
	if peekErr == nil && n == 0 {
		peekErr = io.EOF
	}
	return first[0], peekErr
}
