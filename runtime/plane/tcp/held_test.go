package tcp

import (
	"context"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

func TestHolders(t *testing.T) { planetest.RunHolders(t, turned, true, false) }

// turned opens a plane of two streams to each peer, which access pages behind a turnstile.
func turned(g *planetest.Turnstile) plane.Opener {
	return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		return Config{Streams: 2}.open(ctx, env, calls{
			read: func(fd int, page []byte) (int, error) {
				g.Enter(fd, page)
				return syscall.Read(fd, page)
			},
			send: func(fd int, parts [][]byte) (int, error) {
				g.Enter(fd, parts[1])
				return sendParts(fd, parts)
			},
		})
	}
}
