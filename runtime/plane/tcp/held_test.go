package tcp

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

func TestHolders(t *testing.T) { planetest.RunHolders(t, openWithTurnstile, true, false) }

// openWithTurnstile opens a plane with two streams to each peer, which access pages behind a turnstile. A stream holds
// so little that something is left for the other one.
func openWithTurnstile(g *planetest.Turnstile) plane.Opener {
	return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		return Config{Streams: 2, BufferBytes: 256 << 10}.openWith(ctx, env, socketCalls{
			readv: func(fd int, parts [][]byte) (int, error) {
				g.Enter(fd, parts[0])
				return unix.Readv(fd, parts)
			},
			sendmsg: func(fd int, parts [][]byte) (int, error) {
				g.Enter(fd, parts[1])
				return sendParts(fd, parts)
			},
		})
	}
}
