package hccl

import (
	"time"

	"github.com/kvferry/kvferry/runtime/hccl/comm"
)

// The parts of R: how long hardware may still touch memory after the stream was aborted. Leases and quarantine rest on
// R (M4). R is derived only here.
const (
	// hccsDrain covers the copy between devices that an abort interrupts. The vendor gives no bound; the vendor's
	// transfer library waits this long (docs/ascend.md).
	hccsDrain = 100 * time.Millisecond
	// retryUnit is the unit of HCCL_RDMA_TIMEOUT: a try lasts retryUnit × 2^n.
	retryUnit = 4096 * time.Nanosecond
	// residualMargin is added to what the NIC's own retries may take.
	residualMargin = 100 * time.Millisecond
	// networkMargin covers packets that left before the queue pair was destroyed and are still in the network.
	networkMargin = 20 * time.Millisecond
	// peerMargin is waited after a peer reports that its end is gone, or after the peer died: a driver closes the
	// device of a dead process within a time that the vendor does not specify.
	peerMargin = 100 * time.Millisecond
)

// residualAfterAbort returns R after the abort of a stream whose communicator could not be destroyed. timeout and
// retries are HCCL_RDMA_TIMEOUT and HCCL_RDMA_RETRY_CNT as the library has them.
func residualAfterAbort(hccs bool, timeout, retries int) time.Duration {
	if hccs {
		return hccsDrain
	}
	return retryUnit<<timeout*time.Duration(retries+1) + residualMargin
}

// ResidualOf returns R for a kind of link with the library as it was loaded, for reports. An open plane has the method
// Plane.ResidualTime.
func ResidualOf(l comm.Link, i comm.Info) time.Duration {
	return residualAfterAbort(l == comm.HCCS, i.RDMATimeout.Value, i.RDMARetries.Value)
}

// waitAfterDestroy returns how long to wait after the communicator was aborted and destroyed. Over HCCS the wait is
// before the destruction.
func waitAfterDestroy(hccs bool) time.Duration {
	if hccs {
		return 0
	}
	return networkMargin
}
