//go:build !cgo || !linux

package libzmq

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
)

func TestBuildWithoutCgoNamesRemedy(t *testing.T) {
	_, err := Config{}.Opener()(control.Env{})
	var e *control.Error
	if !errors.As(err, &e) || e.Code != effects.Unsupported || !strings.Contains(err.Error(), "CGO_ENABLED=1") {
		t.Errorf("got %v", err)
	}
}
