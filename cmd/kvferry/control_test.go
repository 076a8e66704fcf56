package main

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
)

// A node over libzmq opens in a build with -tags libzmq. In any other build, the error says how to build one.
func TestControlOverLibzmq(t *testing.T) {
	text := strings.Replace(failingNode, "{kvferry: {", "{kvferry: {control: {transport: libzmq}, ", 1)
	cfg, err := config.Parse("test", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := openNode(t.Context(), cfg, 0, slog.New(slog.DiscardHandler))
	if libzmqAbsent == nil {
		if err != nil {
			t.Fatal(err)
		}
		if err := n.closeWithNPU(t.Context()); err != nil {
			t.Error(err)
		}
		return
	}
	var e *control.Error
	if !errors.As(err, &e) || e.Code != effects.Unsupported {
		t.Fatalf("got %v", err)
	}
	for _, says := range []string{"control.transport libzmq", "-tags libzmq", "libzmq3-dev", "control.transport: zmq"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q does not say %q", err, says)
		}
	}
	if says := "free the named ports"; strings.Contains(err.Error(), says) {
		t.Errorf("%q says %q, which helps nobody", err, says)
	}
}
