//go:build cgo && linux

package libzmq_test

import (
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/libzmq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unhurried takes no silence of a busy machine for the end of a connection.
var unhurried = libzmq.Config{HeartbeatTimeout: time.Minute}

func TestContract(t *testing.T) {
	controltest.Run(t, unhurried.Opener(), "127.0.0.1")
}

func TestPostedMessagesArriveBeforeShutdown(t *testing.T) {
	controltest.PostedBeforeShutdown(t, libzmq.Config{Linger: time.Minute}.Opener(), "127.0.0.1")
}

func TestContractIPv6(t *testing.T) {
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6 loopback: %v", err)
	}
	_ = probe.Close()
	controltest.Run(t, unhurried.Opener(), "::1")
}
