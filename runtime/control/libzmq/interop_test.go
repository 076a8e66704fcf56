//go:build cgo && linux

package libzmq_test

import (
	"testing"

	"github.com/kvferry/kvferry/runtime/control/controltest/plaintest"
	"github.com/kvferry/kvferry/runtime/control/libzmq"
)

func TestPlainSockets(t *testing.T) {
	plaintest.Run(t, libzmq.Config{}.Opener())
}
