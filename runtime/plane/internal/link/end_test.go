package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"syscall"
	"testing"
)

// The end of a link is logged as a warning only if the peer was lost, not if it closed.
func TestOnlyLossesAreWarnings(t *testing.T) {
	for _, c := range []struct {
		err        error
		inProgress int
		want       slog.Level
	}{
		{io.EOF, 0, slog.LevelInfo},
		{io.EOF, 1, slog.LevelWarn},
		{io.ErrUnexpectedEOF, 0, slog.LevelWarn},
		{fmt.Errorf("read: %w", syscall.ECONNRESET), 0, slog.LevelWarn},
		{ErrMalformed, 0, slog.LevelWarn},
	} {
		if got := endLogLevel(c.err, c.inProgress); got != c.want {
			t.Errorf("%v with %d in progress: %v, want %v", c.err, c.inProgress, got, c.want)
		}
	}
}

// A connection is closed in the normal way only between two frames.
func TestEndWithinAFrameIsUnexpected(t *testing.T) {
	frame := appendDone(nil, 1, 0)
	for n := range frame {
		_, _, _, err := ReadFrame(bytes.NewReader(frame[:n]), nil, SmallFrame)
		if want := io.ErrUnexpectedEOF; n == 0 && !errors.Is(err, io.EOF) || n > 0 && !errors.Is(err, want) {
			t.Errorf("%d of %d bytes: %v", n, len(frame), err)
		}
	}
}
