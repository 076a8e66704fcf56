package shm

import (
	"context"
	"testing"

	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

func TestCopiesHeldUp(t *testing.T) { planetest.RunHeld(t, openGated) }

func TestReadsHeldUp(t *testing.T) { planetest.RunHeldReads(t, openGated) }

// openGated opens a plane with one copy thread behind a gate.
func openGated(g *planetest.Gate) plane.Opener {
	return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		return Config{Copiers: 1}.openWith(ctx, env, g.Mover(plane.Move), g.Mover(plane.Move))
	}
}

func TestHolders(t *testing.T) { planetest.RunHolders(t, openWithTurnstile, false, true) }

// openWithTurnstile opens a plane with two copy threads behind a turnstile.
func openWithTurnstile(g *planetest.Turnstile) plane.Opener {
	return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		return Config{Copiers: 2}.openWith(ctx, env, g.Mover(plane.Move), g.Mover(plane.Move))
	}
}
