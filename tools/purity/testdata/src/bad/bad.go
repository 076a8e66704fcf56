// Package bad breaks every rule once.
package bad

import (
	"fmt"
	"maps"      // want `import of maps: walk an ordered table beside the map`
	"math"      // Its constants are welcome; its floating-point functions are not.
	"math/rand" // want `import of math/rand: draw from the generator state`
	"net/netip" // want `import of net/netip: emit an effect`
	"os"        // want `import of os: emit an effect`
	"sync"      // want `import of sync: a machine is single-threaded`
	"time"      // want `import of time: time is an argument of Step`
)

var count int // want `package-level variable count: make it a field`

var (
	lock  sync.Mutex         // want `package-level variable lock`
	table = map[string]int{} // want `package-level variable table`
)

//kvferry:tables are not what this directive is called
var almost = []int{1} // want `package-level variable almost`

type machine struct {
	done    chan int        // want `channel type`
	notify  func(int)       // want `field of function type`
	rate    float64         // want `floating-point type float64`
	ratio   myFloat         // The name is reported where it is declared.
	printer fmt.Stringer    // want `field of foreign interface type fmt.Stringer`
	body    any             // want `field of foreign interface type any`
	err     error           // want `field of foreign interface type error`
	hooks   []func()        // want `element of function type`
	byName  map[string]hook // want `element of function type`
	clock   time.Duration   // The import is what is reported.
	address netip.Addr
}

type hook func()

type myFloat float32 // want `floating-point type float32`

func (m *machine) step(values map[string]int) {
	for k := range values { // want `range over a map`
		_ = k
	}
	for k := range maps.Keys(values) { // The import is what is reported.
		_ = k
	}
	go m.hooks[0]() // want `go statement`
	select {        // want `select statement`
	case v := <-m.done: // want `channel receive`
		count = v
	default:
	}
	m.done <- 1        // want `channel send`
	for range m.done { // want `range over a channel`
	}
	const third = 1.0 / 3 // want `floating-point literal 1.0`
	_ = math.Sqrt(2)      // want `floating-point result`
	_ = float32(count)    // want `floating-point type float32`
	_ = rand.Int()
	_ = os.Args
}

func walk[M ~map[K]V, K comparable, V any](m M) {
	for range m { // want `range over a map`
	}
}
