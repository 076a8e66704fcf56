package valkey

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Bounds of a reply. The client library allocates as much memory as a server announces, so a malicious length would
// end the process.
const (
	replyBytesMax = 64 << 20
	replyPartsMax = 1 << 16 // of one list
	replyDepthMax = 8       // of lists in lists
	lengthMax     = 24      // of the line that announces a length
)

// newDialFunc returns a function that connects to servers, by TLS if config is not nil, and bounds their replies.
func newDialFunc(limit time.Duration, config *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: limit}
	return func(ctx context.Context, network, at string) (net.Conn, error) {
		dial := plain.DialContext
		if config != nil {
			dial = (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
		}
		conn, err := dial(ctx, network, at)
		if err != nil {
			return nil, err
		}
		return &boundedConn{Conn: conn}, nil
	}
}

// A boundedConn fails when a reply exceeds the bounds. Only one goroutine reads the connection.
type boundedConn struct {
	net.Conn
	size      int64   // of the reply so far
	skip      int64   // bytes left of a text and its line's end
	line      []byte  // the beginning of the line that is being read
	openLists []int64 // for each list that has begun, how many of its parts are missing
}

// Read implements net.Conn.
func (b *boundedConn) Read(to []byte) (int, error) {
	n, err := b.Conn.Read(to)
	if wrong := b.checkReply(to[:n]); wrong != nil {
		return 0, errors.Join(wrong, b.Close())
	}
	return n, err
}

// checkReply follows the structure of the received bytes and returns an error if a bound is exceeded.
func (b *boundedConn) checkReply(received []byte) error {
	for len(received) > 0 {
		n := int(min(b.skip, int64(len(received))))
		if n == 0 {
			n = bytes.IndexByte(received, '\n') + 1
			whole := n > 0
			if !whole {
				n = len(received)
			}
			b.line = append(b.line, received[:min(n, lengthMax-len(b.line))]...)
			if whole {
				if err := b.startPart(bytes.TrimRight(b.line, "\r\n")); err != nil {
					return err
				}
				b.line = b.line[:0]
			}
		} else if b.skip -= int64(n); b.skip == 0 {
			b.endPart()
		}
		if b.size += int64(n); b.size > replyBytesMax {
			return fmt.Errorf("a reply has more than %d bytes", replyBytesMax)
		}
		if len(b.openLists) == 0 && b.skip == 0 && len(b.line) == 0 {
			b.size = 0
		}
		received = received[n:]
	}
	return nil
}

// startPart takes the line with which a part begins. Most parts consist of that line only.
func (b *boundedConn) startPart(line []byte) error {
	if len(line) == 0 || line[0] != '$' && line[0] != '*' {
		b.endPart()
		return nil
	}
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	switch {
	case err != nil, line[0] == '$' && n > replyBytesMax, line[0] == '*' && n > replyPartsMax:
		return fmt.Errorf("a part of a reply begins with %q; the limits are %d bytes and lists of %d", line, replyBytesMax,
			replyPartsMax)
	case n >= 0 && line[0] == '$':
		b.skip = n + 2
	case n > 0:
		if b.openLists = append(b.openLists, n); len(b.openLists) > replyDepthMax {
			return fmt.Errorf("a reply has lists in more than %d lists", replyDepthMax)
		}
	default:
		b.endPart()
	}
	return nil
}

// endPart notes the end of a part, and of each list that ends with the part.
func (b *boundedConn) endPart() {
	for i := len(b.openLists) - 1; i >= 0; i-- {
		if b.openLists[i]--; b.openLists[i] > 0 {
			return
		}
		b.openLists = b.openLists[:i]
	}
}
