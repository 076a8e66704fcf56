package runtime_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

// For how long a node polls is its transport's to know.
func TestPollReachesTheTransport(t *testing.T) {
	cfg := senderConfig(t, shm.Name, effects.Addr{})
	cfg.Poll = 7 * time.Microsecond
	var got time.Duration
	enough := errors.New("seen enough")
	_, err := runtime.Open(t.Context(), cfg, runtime.WithControl(func(env control.Env) (control.Transport, error) {
		got = env.Poll
		return nil, enough
	}), runtime.WithPlane(shm.Name, shm.Open))
	if got != cfg.Poll || !errors.Is(err, enough) {
		t.Errorf("the transport is to poll for %v, want %v: %v", got, cfg.Poll, err)
	}
}
