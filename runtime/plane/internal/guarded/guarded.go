// Package guarded makes and takes the connections between the planes of two nodes, which a guard authenticates: the links
// of the tcp plane, and the channels of the leased planes.
//
//	conn, err := guarded.Dial(ctx, env.Guard, address) // at the node that opens a link
//	conn, err := guarded.Accept(env.Guard, accepted)   // at the other node
package guarded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/framing"
	"github.com/kvferry/kvferry/runtime/secure"
)

// engineRoles are the roles of the nodes that have pages.
var engineRoles = effects.ChannelInit.ClientRoles()

// Dial connects to the address that a peer advertises, and authenticates the peer. In mode Permissive it connects without
// TLS if the peer answers without TLS.
func Dial(ctx context.Context, guard *secure.Guard, address string) (net.Conn, error) {
	switch guard.Mode() {
	case secure.Off:
		return framing.Dial(ctx, address)
	case secure.Strict:
		return dialTLS(ctx, guard, address)
	case secure.Permissive:
	}
	secured, err := RetryClosed(ctx, func() (net.Conn, error) { return dialTLS(ctx, guard, address) })
	if !errors.Is(err, secure.ErrNoTLS) && !closedByPeer(err) {
		return secured, err
	}
	// Our handshake has spoilt the first connection. A server of an earlier release only closes it.
	conn, err := framing.Dial(ctx, address)
	if err == nil {
		guard.CountPlain(conn.RemoteAddr())
	}
	return conn, err
}

func dialTLS(ctx context.Context, guard *secure.Guard, address string) (net.Conn, error) {
	conn, err := framing.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	secured, _, err := guard.Connect(ctx, conn, secure.FaceData, engineRoles)
	return secured, err
}

// Accept authenticates the peer of a connection that a listener accepted, and returns the connection to use from now on,
// which the caller closes. The caller bounds the time by a deadline of the connection.
func Accept(guard *secure.Guard, conn net.Conn) (net.Conn, error) {
	secured, peer, err := guard.Accept(conn, secure.FaceData, engineRoles)
	if err == nil && !peer.Roles.Has(engineRoles) {
		_ = secured.Close() // The guard keeps a connection until then.
		return nil, fmt.Errorf("%q has the roles %v, and pages are only for %v: change security.policy if it is an engine's node",
			peer.Name, peer.Roles, engineRoles)
	}
	return secured, err
}

// A connection that the peer closes early is opened again. While many strangers connect, the target's door may have
// closed it to make room, because the door learns only from the proof in a hello or a join that the peer is known.
const (
	maxTries    = 8
	minTryPause = time.Millisecond
)

// RetryClosed calls try until it succeeds, or fails for another reason than that the peer closed the connection, at
// most maxTries times.
func RetryClosed[T any](ctx context.Context, try func() (T, error)) (result T, err error) {
	pause := minTryPause
	for range maxTries {
		if result, err = try(); err == nil || !closedByPeer(err) {
			return result, err
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return result, err
		}
	}
	return result, err
}

// closedByPeer reports whether the peer closed the connection, as opposed to sending nothing or nonsense.
func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// ReadFirstFrame reads the first frame of a connection by read, which returns an error that wraps framing.ErrMalformed if
// the peer sends something else. A peer that begins a TLS handshake is told that this node does not speak TLS.
func ReadFirstFrame(conn net.Conn, read func(io.Reader) error) error {
	var first bytes.Buffer
	err := read(io.TeeReader(conn, &first))
	if errors.Is(err, framing.ErrMalformed) && secure.IsTLS(first.Bytes()) {
		secure.RefuseTLS(conn)
		err = errors.New("the peer speaks TLS, and security.mode is off: set it to permissive here, or to permissive at the peer")
	}
	return err
}
