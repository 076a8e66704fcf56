//go:build cgo && linux

package npunode

import (
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/npu/npuengine"
)

// An engine computes on the NPU in the node's process, as a real engine does.
type engine struct{ *npuengine.Engine }

// FillPage implements agent.Engine.
func (e engine) FillPage(p *runtime.Pages, i, n int, fill func([]byte)) error {
	page, err := p.DevicePage(i)
	if err != nil {
		return err
	}
	page.Bytes = uint32(min(n, int(page.Bytes)))
	return e.FillPages([]runtime.DevicePage{page}, func(_ int, b []byte) { fill(b) })
}

// ReadPage implements agent.Engine.
func (e engine) ReadPage(p *runtime.Pages, i int, look func([]byte)) error {
	page, err := p.DevicePage(i)
	if err != nil {
		return err
	}
	return e.ReadPages([]runtime.DevicePage{page}, func(_ int, b []byte) { look(b) })
}

// SetDestination implements agent.Engine.
func (e engine) SetDestination(f *runtime.Fetch, look func(key int, chunk []byte)) {
	f.ScatterDevice = e.ScatterFunc(look)
}
