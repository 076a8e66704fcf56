package hccl

import (
	"time"

	"github.com/kvferry/kvferry/runtime/hccl/comm"
)

// How long hardware may still touch memory after its stream was aborted: the bound R that leases and quarantine rest
// on. This is the only place where it is derived.
const (
	// hccsDrain covers the copy that an abort finds running between devices. The vendor names no bound; its own
	// transfer library waits as long (docs/ascend.md).
	hccsDrain = 100 * time.Millisecond
	// retryUnit is the unit of HCCL_RDMA_TIMEOUT: one try lasts retryUnit × 2^n.
	retryUnit = 4096 * time.Nanosecond
	// residualMargin is added to what the NIC's own retries may take.
	residualMargin = 100 * time.Millisecond
	// networkMargin covers packets that left before the queue pair was destroyed and are still in the network.
	networkMargin = 20 * time.Millisecond
	// peerMargin is waited after the word, or the death, of a peer whose own end was to be gone: a driver closes a dead
	// process's device in a time that the vendor does not name.
	peerMargin = 100 * time.Millisecond
)

// residual is R after an abort of a stream whose communicator could not be destroyed. timeout and retries are
// HCCL_RDMA_TIMEOUT and HCCL_RDMA_RETRY_CNT as the library has them.
func residual(hccs bool, timeout, retries int) time.Duration {
	if hccs {
		return hccsDrain
	}
	return retryUnit<<timeout*time.Duration(retries+1) + residualMargin
}

// Residual is R over a kind of link with a library as it was loaded, for reports; an open plane has its own.
func Residual(l comm.Link, i comm.Info) time.Duration {
	return residual(l == comm.HCCS, i.RDMATimeout.Value, i.RDMARetries.Value)
}

// afterDestroy is what remains to be waited where the communicator was destroyed after the abort. Over HCCS the wait
// comes before it.
func afterDestroy(hccs bool) time.Duration {
	if hccs {
		return 0
	}
	return networkMargin
}
