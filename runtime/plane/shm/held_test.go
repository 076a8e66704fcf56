package shm

import (
	"context"
	"testing"

	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

func TestCopiesHeldUp(t *testing.T) { planetest.RunHeld(t, gated) }

func TestReadsHeldUp(t *testing.T) { planetest.RunHeldReads(t, gated) }

// gated opens a plane with one copy thread behind a gate.
func gated(g *planetest.Gate) plane.Opener {
	return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		return Config{Copiers: 1}.open(ctx, env, g.Mover(plane.Move), g.Mover(plane.Move))
	}
}

func TestHolders(t *testing.T) { planetest.RunHolders(t, turned, false, true) }

// turned opens a plane with two copy threads behind a turnstile.
func turned(g *planetest.Turnstile) plane.Opener {
	return func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		return Config{Copiers: 2}.open(ctx, env, g.Mover(plane.Move), g.Mover(plane.Move))
	}
}
