package shm

import (
	"context"
	"testing"

	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

func TestCopiesHeldUp(t *testing.T) {
	planetest.RunHeld(t, func(g *planetest.Gate) plane.Opener {
		return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
			return Config{Copiers: 1}.open(ctx, env, g.Mover(plane.Move), g.Mover(plane.Move))
		}
	})
}
