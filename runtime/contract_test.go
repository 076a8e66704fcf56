package runtime_test

import (
	"sync"
	"testing"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// audit holds a node, its machine and its real drivers together, to the contract from
// its opening to the end of the test: that of fenced planes, or of leased ones.
func audit(t *testing.T, fenced bool) runtime.Option {
	var mu sync.Mutex
	var broken error
	c := contract.New(fenced)
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if broken == nil {
			broken = err
		}
	}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if broken != nil {
			t.Error(broken)
		}
	})
	return runtime.WithWatch(func(ev effects.Event) { note(c.CheckEvent(ev)) }, func(e effects.Effect) { note(c.CheckEffect(e)) })
}
