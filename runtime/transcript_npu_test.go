//go:build cgo && linux

package runtime_test

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/npu"
)

// npuSituations is what is said where hardware fails, over the software NPU. It is one situation, because that has
// faults for the whole process.
var npuSituations = []situation{
	{"puts between NPUs that fail", effects.Faulted, func(x *transcript) {
		r := hccltest.StartRig(x.T)
		s, to := openNPU(x.T, r, 1, pushing(x.T, "npu"), npu.Options{}), openNPU(x.T, r, 2, receiving(x.T, "npu"),
			npu.Options{})
		x.setReceiver(peerOf(to.Node))
		keys := keysOf("told", 1)
		pages := s.filled(x.T, keys)
		put := func() error {
			_, err := s.Sender().Put(within(x), runtime.Put{Peer: peerOf(to.Node), Request: "r", Keys: keys, Pages: pages})
			return err
		}
		for _, rule := range []string{"done:fail=1", "call:sym=HcclBatchPut,nth=1,code=4"} {
			r.AddFaults(x.T, rule)
			x.addError(put())
			r.ClearFaults(x.T)
		}
		if err := put(); err != nil { // It is mended by then.
			x.Error(err)
		}
		mustRelease(x, pages)
	}},
}
