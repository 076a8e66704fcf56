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

// What one reply may be. The client's library makes room for as much as a server says that it will send, and would take
// the process down with it.
const (
	replyBytes = 64 << 20
	replyParts = 1 << 16 // of one list
	replyDepth = 8       // of lists in lists
	lengthMax  = 24      // of the line that says a length
)

// dialer connects to servers, by TLS if config is not nil, and bounds their replies.
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
		return &bounded{Conn: conn}, nil
	}
}

// A bounded connection reads no reply that is beyond what one may be. One goroutine reads it.
type bounded struct {
	net.Conn
	size int64   // of the reply so far
	skip int64   // bytes of a text, and its line's end
	line []byte  // the beginning of the line that is being read
	open []int64 // parts that are missing in each list that has begun
}

// Read implements net.Conn.
func (b *bounded) Read(to []byte) (int, error) {
	n, err := b.Conn.Read(to)
	if wrong := b.look(to[:n]); wrong != nil {
		return 0, errors.Join(wrong, b.Close())
	}
	return n, err
}

func (b *bounded) look(came []byte) error {
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
				if err := b.begun(bytes.TrimRight(b.line, "\r\n")); err != nil {
					return err
				}
				b.line = b.line[:0]
			}
		} else if b.skip -= int64(n); b.skip == 0 {
			b.ended()
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

// begun takes the line with which a part begins; most are no more than that.
func (b *bounded) begun(line []byte) error {
	if len(line) == 0 || line[0] != '$' && line[0] != '*' {
		b.ended()
		return nil
	}
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	switch {
	case err != nil, line[0] == '$' && n > replyBytes, line[0] == '*' && n > replyParts:
		return fmt.Errorf("a part of a reply begins with %q; at most %d bytes, or a list of %d, are taken", line, replyBytes,
			replyParts)
	case n >= 0 && line[0] == '$':
		b.skip = n + 2
	case n > 0:
		if b.open = append(b.open, n); len(b.open) > replyDepth {
			return fmt.Errorf("a reply has lists in more than %d lists", replyDepth)
		}
	default:
		b.ended()
	}
	return nil
}

// ended is the end of a part, and of each list whose last one it is.
func (b *bounded) ended() {
	for i := len(b.open) - 1; i >= 0; i-- {
		if b.open[i]--; b.open[i] > 0 {
			return
		}
		b.open = b.open[:i]
	}
}
