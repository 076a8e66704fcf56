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
	replyBytes = 64 << 20
	replyParts = 1 << 16 // of one list
	replyDepth = 8       // of lists in lists
	lengthMax  = 24      // of the line that announces a length
)

// dialer returns a function that connects to servers, by TLS if config is not nil, and bounds their replies.
func dialer(limit time.Duration, config *tls.Config) func(context.Context, string, string) (net.Conn, error) {
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
	size int64   // of the reply so far
	skip int64   // bytes left of a text and its line's end
	line []byte  // the beginning of the line that is being read
	open []int64 // for each list that has begun, how many of its parts are missing
}

// Read implements net.Conn.
func (b *boundedConn) Read(to []byte) (int, error) {
	n, err := b.Conn.Read(to)
	if wrong := b.check(to[:n]); wrong != nil {
		return 0, errors.Join(wrong, b.Close())
	}
	return n, err
}

// check follows the structure of the received bytes and returns an error if a bound is exceeded.
func (b *boundedConn) check(came []byte) error {
	for len(came) > 0 {
		n := int(min(b.skip, int64(len(came))))
		if n == 0 {
			n = bytes.IndexByte(came, '\n') + 1
			whole := n > 0
			if !whole {
				n = len(came)
			}
			b.line = append(b.line, came[:min(n, lengthMax-len(b.line))]...)
			if whole {
				if err := b.startPart(bytes.TrimRight(b.line, "\r\n")); err != nil {
					return err
				}
				b.line = b.line[:0]
			}
		} else if b.skip -= int64(n); b.skip == 0 {
			b.endPart()
		}
		if b.size += int64(n); b.size > replyBytes {
			return fmt.Errorf("a reply has more than %d bytes", replyBytes)
		}
		if len(b.open) == 0 && b.skip == 0 && len(b.line) == 0 {
			b.size = 0
		}
		came = came[n:]
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
	case err != nil, line[0] == '$' && n > replyBytes, line[0] == '*' && n > replyParts:
		return fmt.Errorf("a part of a reply begins with %q; the limits are %d bytes and lists of %d", line, replyBytes,
			replyParts)
	case n >= 0 && line[0] == '$':
		b.skip = n + 2
	case n > 0:
		if b.open = append(b.open, n); len(b.open) > replyDepth {
			return fmt.Errorf("a reply has lists in more than %d lists", replyDepth)
		}
	default:
		b.endPart()
	}
	return nil
}

// endPart notes the end of a part, and of each list that ends with the part.
func (b *boundedConn) endPart() {
	for i := len(b.open) - 1; i >= 0; i-- {
		if b.open[i]--; b.open[i] > 0 {
			return
		}
		b.open = b.open[:i]
	}
}
