package hccl

import (
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/hccl/comm"
)

// R by the vendor's formula, with values computed independently: a try lasts 4.096 µs × 2^timeout, and there are
// retries+1 tries.
func TestResidual(t *testing.T) {
	const margin = 100 * time.Millisecond
	for _, c := range []struct {
		link             comm.Link
		timeout, retries int
		want             time.Duration
	}{
		{comm.RoCE, 20, 7, 34_359_738_368 + margin}, // the vendor's defaults
		{comm.RoCE, 15, 7, 1_073_741_824 + margin},  // ours
		{comm.RoCE, 5, 1, 262_144 + margin},
		{comm.HCCS, 20, 7, 100 * time.Millisecond},
	} {
		info := comm.Info{RDMATimeout: comm.Setting{Value: c.timeout}, RDMARetries: comm.Setting{Value: c.retries}}
		if got := ResidualOf(c.link, info); got != c.want {
			t.Errorf("%v, %d, %d: R is %v; want %v", c.link, c.timeout, c.retries, got, c.want)
		}
	}
	if roce, hccs := waitAfterDestroy(false), waitAfterDestroy(true); roce < 10*time.Millisecond || hccs != 0 {
		t.Errorf("after destroying %v over RoCE and %v over HCCS", roce, hccs)
	}
}
