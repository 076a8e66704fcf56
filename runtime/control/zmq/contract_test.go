package zmq_test

import (
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/runtime/control/controltest"
	"github.com/kvferry/kvferry/runtime/control/zmq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unhurried has timeouts so long that a busy machine never causes one.
var unhurried = zmq.Config{HeartbeatTimeout: time.Minute}

func TestContract(t *testing.T) {
	controltest.Run(t, unhurried.Opener(), "127.0.0.1")
}

// A transport that polls before it sleeps keeps the same contract.
func TestContractPolling(t *testing.T) {
	polling := unhurried
	polling.Poll = 100 * time.Microsecond
	controltest.Run(t, polling.Opener(), "127.0.0.1")
}

func TestPostedMessagesArriveBeforeShutdown(t *testing.T) {
	controltest.PostedBeforeShutdown(t, zmq.Config{Linger: time.Minute}.Opener(), "127.0.0.1")
}

func TestContractIPv6(t *testing.T) {
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6 loopback: %v", err)
	}
	_ = probe.Close()
	controltest.Run(t, unhurried.Opener(), "::1")
}
