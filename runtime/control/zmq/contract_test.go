//go:build cgo && linux

package zmq_test

import (
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	controltest.Run(t, zmq.Config{}.Opener(), "127.0.0.1")
}

func TestContractIPv6(t *testing.T) {
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6 loopback: %v", err)
	}
	_ = probe.Close()
	controltest.Run(t, zmq.Config{}.Opener(), "::1")
}
