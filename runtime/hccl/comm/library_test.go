//go:build cgo && linux

package comm

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/acl/acltest"
	"github.com/kvferry/kvferry/runtime/hccl/comm/commtest"
	"github.com/kvferry/kvferry/runtime/softnpu"
)

// The binding and the software NPU were compiled from separate declarations, which must agree.
func TestLayoutOfTheABI(t *testing.T) {
	r := newRigWithoutBindings(t)
	for name, ours := range commtest.ABILayout() {
		if theirs, ok := r.npu.ABIValue(name); !ok || theirs != uint64(ours) {
			t.Errorf("%s: %d here, %d there (known there: %v)", name, ours, theirs, ok)
		}
	}
}

func loadAttempts(t *testing.T, err error) []Attempt {
	t.Helper()
	var missed *LoadError
	if !errors.As(err, &missed) || !errors.Is(err, acl.Config) {
		t.Fatalf("got %T %v, want a *LoadError", err, err)
	}
	return missed.Attempts
}

// The C library is not HCCL: the error names every function that a sequence needs, and no optional function.
func TestOpenOfAnotherLibrary(t *testing.T) {
	_, err := Open(Options{Library: "libc.so.6"})
	attempts := loadAttempts(t, err)
	if len(attempts) != 1 {
		t.Fatalf("tried %+v", attempts)
	}
	for _, name := range slices.Concat([]string{"HcclCommDestroy", "HcclBatchPut", "HcclBatchGet"}, newerSymbols, olderSymbols) {
		if !slices.Contains(attempts[0].Missing, name) {
			t.Errorf("%s is not named as missing", name)
		}
	}
	if slices.Contains(attempts[0].Missing, "HcclGetErrorString") {
		t.Error("an optional function is named")
	}
}

// olderSymbols lists the symbols that only the older sequence uses.
var olderSymbols = []string{"HcclRegisterMem", "HcclDeregisterMem", "HcclExchangeMemDesc", "HcclEnableMemAccess",
	"HcclDisableMemAccess"}

// Without any function of the newer sequence the older sequence is used. If both sequences lack a function, the error
// names the missing functions.
func TestSequenceIsChosenBySymbol(t *testing.T) {
	needNPU(t)
	chosen := func(hidden ...string) (Sequence, []string) {
		l, err := Open(Options{Library: softnpuPath, hiddenSymbols: hidden})
		if err != nil {
			return 0, loadAttempts(t, err)[0].Missing
		}
		defer l.Close()
		return l.Info().Sequence, nil
	}
	if s, _ := chosen(); s != Global {
		t.Errorf("of a whole library: %v", s)
	}
	for _, name := range newerSymbols {
		if s, _ := chosen(name); s != Exchange {
			t.Errorf("without %s: %v", name, s)
		}
		for _, second := range olderSymbols {
			if s, missing := chosen(name, second); s != 0 || !slices.Equal(missing, []string{name, second}) {
				t.Errorf("without %s and %s: %v, missing %v", name, second, s, missing)
			}
		}
	}
	for _, name := range []string{"HcclCommDestroy", "HcclBatchPut", "HcclBatchGet"} {
		for _, hidden := range librariesBySequence {
			if s, missing := chosen(append([]string{name}, hidden...)...); s != 0 || !slices.Equal(missing, []string{name}) {
				t.Errorf("without %s: %v, missing %v", name, s, missing)
			}
		}
	}
	for _, name := range olderSymbols {
		if s, _ := chosen(name); s != Global {
			t.Errorf("without %s: %v", name, s)
		}
	}
	for want, lacked := range map[Sequence]string{Global: "HcclCommBindMem", Exchange: "HcclRegisterMem"} {
		l, err := Open(Options{Library: softnpuPath, Sequence: want})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Info().Sequence; got != want {
			t.Errorf("asked for %v, got %v", want, got)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		_, err = Open(Options{Library: softnpuPath, Sequence: want, hiddenSymbols: []string{lacked}})
		if missing := loadAttempts(t, err)[0].Missing; !slices.Equal(missing, []string{lacked}) {
			t.Errorf("asked for %v of a library without %s: missing %v", want, lacked, missing)
		}
	}
	makers := []string{
		"HcclCommInitClusterInfoConfig", "HcclCommInitClusterInfo", "HcclCommInitRootInfoConfig", "HcclCommInitRootInfo",
	}
	if s, missing := chosen(append(makers, newerSymbols...)...); s != 0 || !slices.Contains(missing, makers[0]) {
		t.Errorf("with no way to make a communicator: %v, missing %v", s, missing)
	}
}

// A library really lacks the newer functions. The test uses a separate process, because two libraries in a process
// would share their symbols.
func TestLibraryOfAnOlderRelease(t *testing.T) {
	needNPU(t)
	path := os.Getenv("KVFERRY_SOFTNPU")
	if os.Getenv(ownProcessVariable) == "" {
		var err error
		if path, err = (softnpu.Variant{Hide: newerSymbols}).BuildLibrary(); err != nil {
			t.Fatal(err)
		}
	}
	if !runInOwnProcess(t, "KVFERRY_SOFTNPU="+path) {
		return
	}
	l, e := newPairOfProcesses(t, RoCE)
	if e.lib.Info().Sequence != Exchange {
		t.Errorf("got %v", e.lib.Info().Sequence)
	}
	if !l.isOther {
		if err := e.putBatch(Desc{e.device.Address(), e.peer.Device, 64}); err != nil {
			t.Error(err)
		}
		l.allowStep()
		return
	}
	l.awaitStep()
}

func TestInfo(t *testing.T) {
	r := newRig(t, "HcclGetCommAsyncError")
	info := r.lib.Info()
	if info.Library != softnpuPath || info.Capability == 0 || len(info.Signals) != 0 {
		t.Errorf("got %+v", info)
	}
	if !slices.Equal(info.Missing, []string{"HcclGetCommAsyncError"}) || r.lib.HasSymbol("HcclGetCommAsyncError") ||
		!r.lib.HasSymbol("HcclBatchPut") {
		t.Errorf("missing: %v", info.Missing)
	}
	if r.lib.DescMax() != DescMax {
		t.Errorf("%d descriptors", r.lib.DescMax())
	}
}

func TestClosedLibrary(t *testing.T) {
	r := newRig(t)
	c := r.newContext(0)
	l, err := Open(Options{Library: softnpuPath, DescMax: 64})
	if err != nil {
		t.Fatal(err)
	}
	if l.DescMax() != 64 {
		t.Errorf("%d descriptors", l.DescMax())
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	mustDoBlocking(t, c, func(at acl.CurrentThread) error {
		_, err := l.RegisterMemory(at, Memory{acl.OnDevice, 4096, 4096})
		wantRefusal(t, err, ErrClosed, "library")
		_, err = l.NewComm(at, commOptions(t, RoCE, 0, "closed"))
		wantRefusal(t, err, ErrClosed, "library")
		return nil
	})
}

// Variables that HCCL reads once are set before the library is loaded, unless the user has set them. If the library is
// loaded already, its defaults count.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		name             string
		env              []string
		resident         bool
		options          Options
		timeout, retries Setting
		roce             bool
		refused          string
	}{
		{name: "kvferry's", timeout: Setting{15, FromOptions}, retries: Setting{7, FromOptions}},
		{name: "the options'", options: Options{RDMATimeout: 14, RDMARetries: 3}, timeout: Setting{14, FromOptions},
			retries: Setting{3, FromOptions}},
		{
			name: "the user's", env: []string{"HCCL_RDMA_TIMEOUT=17", "HCCL_INTRA_ROCE_ENABLE=1"},
			options: Options{RDMATimeout: 14},
			timeout: Setting{17, FromUser}, retries: Setting{7, FromOptions}, roce: true,
		},
		{name: "loaded before", resident: true, timeout: Setting{20, FromLibrary}, retries: Setting{7, FromLibrary}},
		{name: "loaded before, and the user's", env: []string{"HCCL_RDMA_TIMEOUT=18"}, resident: true,
			timeout: Setting{18, FromUser}, retries: Setting{7, FromLibrary}},
		{name: "no number", env: []string{"HCCL_RDMA_TIMEOUT=fast"}, refused: `HCCL_RDMA_TIMEOUT is "fast": give 5 to 20`},
		{name: "out of bounds", env: []string{"HCCL_RDMA_RETRY_CNT=8"}, refused: `HCCL_RDMA_RETRY_CNT is "8": give 1 to 7`},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := append([]string{"HCCL_RDMA_TIMEOUT=", "HCCL_RDMA_RETRY_CNT=", "HCCL_INTRA_ROCE_ENABLE="}, c.env...)
			if !runInOwnProcess(t, env...) {
				return
			}
			if c.resident {
				if _, err := acltest.OpenNPU(softnpuPath); err != nil {
					t.Fatal(err)
				}
			}
			// A second Open with different options keeps the first values.
			for _, o := range []Options{c.options, {RDMATimeout: 5, RDMARetries: 1}} {
				o.Library = softnpuPath
				l, err := Open(o)
				if c.refused != "" {
					if !errors.Is(err, acl.Config) || !strings.Contains(err.Error(), c.refused) {
						t.Errorf("got %v, want %q", err, c.refused)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				info := l.Info()
				if info.RDMATimeout != c.timeout || info.RDMARetries != c.retries || info.IntraRoCE != c.roce {
					t.Errorf("timeout %v, retries %v, RoCE inside a host %v", info.RDMATimeout, info.RDMARetries, info.IntraRoCE)
				}
				if got := os.Getenv("HCCL_RDMA_TIMEOUT"); c.timeout.From != FromLibrary && got != fmt.Sprint(c.timeout.Value) {
					t.Errorf("HCCL_RDMA_TIMEOUT is %q", got)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// If no library was loaded, no variable is left in the environment of later children.
func TestEnvironmentOfNoLibrary(t *testing.T) {
	if !runInOwnProcess(t, "HCCL_RDMA_TIMEOUT=", "HCCL_RDMA_RETRY_CNT=") {
		return
	}
	if _, err := Open(Options{Library: "/nowhere/libhcomm.so"}); err == nil {
		t.Fatal("opened nothing")
	}
	if a, b := os.Getenv("HCCL_RDMA_TIMEOUT"), os.Getenv("HCCL_RDMA_RETRY_CNT"); a != "" || b != "" {
		t.Errorf("left: %q and %q", a, b)
	}
	l, err := Open(Options{Library: softnpuPath})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// A loaded library keeps the values from the time of loading.
	if _, err := Open(Options{Library: "/nowhere/libhcomm.so"}); err == nil {
		t.Fatal("opened nothing")
	}
	if got := os.Getenv("HCCL_RDMA_TIMEOUT"); got != "15" {
		t.Errorf("HCCL_RDMA_TIMEOUT is %q under a library", got)
	}
}
