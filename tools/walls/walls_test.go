package walls

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kvferry/kvferry"

// pureStd is the part of the standard library that computes and knows nothing of the world.
var pureStd = []string{
	"bytes", "cmp", "crypto/hmac", "crypto/sha256", "crypto/subtle", "encoding/binary", "encoding/hex", "errors", "fmt",
	"iter", "math", "math/bits",
	"slices", "strconv", "strings", "unicode/utf8",
}

// A room is a package, or with /... a folder of packages, and what it may import directly. The
// first room that matches a package is the one that counts. In every list a trailing /... stands for
// all that is below; names without a host are our own packages, or the standard library's in std.
type room struct {
	name    string
	std     []string // nil: all of it
	own     []string // packages of this module
	foreign []string // packages of other modules; nil: whatever go.mod has
	not     []string // own packages refused although own allows them
}

var none = []string{}

// identifiers is what makes and reads the names of drivers: UUIDs.
var identifiers = []string{"github.com/google/uuid"}

var rooms = []room{
	{name: "effects", std: pureStd, own: none, foreign: none},
	// What every driver must do, for the tests of all of them: it knows none.
	{name: "contract", std: pureStd, own: []string{"effects"}, foreign: none},
	// Embeds a file, so it is no part of what machines stand on.
	{name: "protocol/vectors", std: []string{"embed", "encoding/hex", "strings"}, own: none, foreign: none},
	{name: "protocol/...", not: []string{"protocol/vectors"}, std: pureStd, own: []string{"protocol/..."}, foreign: none},

	// Who a peer is: names and tokens out of a key. Machines make them and planes check them.
	{name: "identity", std: pureStd, own: []string{"effects"}, foreign: none},

	// A rank, from below: what belongs to nobody in particular, pages, peers, and flows over all three.
	{name: "fsm/rank/kernel/...", std: pureStd, foreign: none,
		own: []string{"effects", "fsm/prng", "fsm/table", "fsm/rank/env", "fsm/rank/kernel"}},
	{name: "fsm/rank/env", std: pureStd, own: []string{"effects", "fsm/rank/kernel", "fsm/rank/memory"}, foreign: none},
	{name: "fsm/rank/memory/geometry", std: pureStd, own: []string{"protocol"}, foreign: none},
	{name: "fsm/rank/memory/...", std: pureStd, own: memory(), foreign: none},
	{name: "fsm/rank/peers/...", std: pureStd, own: peers(), foreign: none},
	// What flows share, and what each of them is handed: no flow.
	{name: "fsm/rank/flows/flow", std: pureStd, own: shared(), foreign: none},
	{name: "fsm/rank/flows/engine", std: pureStd, own: shared(), foreign: none},
	{name: "fsm/rank/flows/deferred", std: pureStd, own: shared(), foreign: none},
	{name: "fsm/rank/flows/p2p", std: pureStd, own: append(shared(), "fsm/directory/registrar"), foreign: none},
	// A flow knows no other. Pushes, offers and layers are puts.
	{name: "fsm/rank/flows/...", std: pureStd, own: append(shared(), "fsm/rank/flows/put"), foreign: none},
	{name: "fsm/rank", std: pureStd, own: []string{"effects", "identity", "protocol", "fsm/..."}, foreign: none},

	// The decider of leased planes between devices; of a rank it knows nothing.
	{name: "fsm/communicator", std: pureStd, own: []string{"effects", "fsm/rank/kernel", "fsm/table"}, foreign: none},
	{name: "fsm/session", std: pureStd, own: []string{"effects", "protocol"}, foreign: none},
	// Makes words of ours of those of plain engines, and theirs of ours.
	{name: "fsm/gateway", std: pureStd, foreign: none, own: []string{"effects", "protocol", "fsm/rank/memory/geometry",
		"fsm/rank/peers/link", "fsm/rank/flows/register"}},
	// What a directory knows, and no message.
	{name: "fsm/directory/index", std: pureStd, own: []string{"fsm/prng", "fsm/table"}, foreign: none},
	{name: "fsm/directory", std: pureStd, own: []string{"effects", "fsm/directory/index", "fsm/prng", "fsm/table"},
		foreign: none},
	// The same in messages.
	{name: "fsm/directory/replica", std: pureStd, own: []string{"effects", "fsm/table", "protocol/sharedlog"},
		foreign: none},
	{name: "fsm/directory/serve", std: pureStd, foreign: none,
		own: []string{"effects", "fsm/directory", "fsm/directory/replica", "protocol", "protocol/sharedlog"}},
	// A worker's side of it: it tells what the store has.
	{name: "fsm/directory/registrar", std: pureStd, own: memory(), foreign: none},
	// Leaves, which know nothing.
	{name: "fsm/...", std: pureStd, own: []string{"effects", "fsm/table"}, foreign: none},

	// Copies, hashes and tells any state that is a plain tree, and knows nobody's.
	{name: "snapshot", own: none, foreign: none},
	// Leaves of the simulator.
	{name: "sim/draw", own: []string{"effects"}, foreign: none},
	// Files that users name: a plan and a page replace what they wrote themselves, and nothing else.
	{name: "sim/internal/replace", own: none, foreign: none},
	{name: "sim/plan", own: []string{"effects", "sim/draw", "sim/internal/replace"},
		foreign: []string{"go.yaml.in/yaml/v4"}},
	{name: "sim/condense", own: []string{"effects", "sim/draw", "sim/plan", "sim/world"}, foreign: none},
	{name: "sim/expand", own: []string{"effects", "protocol", "sim/draw", "sim/plan", "sim/world"}, foreign: none},
	{name: "sim/coverage", own: none, foreign: none},
	// Any machine runs there: it knows no rank and no message. The decider of planes between devices is a part of those.
	{name: "sim/world", foreign: none, own: []string{"effects", "contract", "identity", "fsm/communicator", "sim/coverage",
		"sim/draw", "sim/oracle", "sim/plan", "sim/trace"}},
	// Every order in a small world, whoever plays there: of machines it knows the containers that they are made of.
	{name: "sim/explore", foreign: none, own: []string{"effects", "fsm/rank/kernel", "fsm/table", "sim/coverage", "sim/draw",
		"sim/oracle", "sim/plan", "sim/world", "snapshot"}},
	// Ranks and their engines: whoever judges them is told, and not known.
	{name: "sim/systems/pd", foreign: none, own: []string{"effects", "identity", "protocol", "protocol/foreign", "fsm/...",
		"sim/coverage", "sim/draw", "sim/expand", "sim/explore", "sim/oracle", "sim/plan", "sim/story", "sim/trace",
		"sim/world", "snapshot"}},
	// Small worlds are plans.
	{name: "sim/systems/pd/scopes", foreign: none, own: []string{"sim/draw", "sim/explore", "sim/plan"}},
	// Who judges ranks: of a run it knows what the world and the engines say.
	{name: "sim/systems/pd/ledger", foreign: none, own: []string{"contract", "effects", "identity", "protocol", "fsm/...",
		"sim/coverage", "sim/draw", "sim/oracle", "sim/plan", "sim/systems/pd", "sim/world"}},
	// What systems without ranks are made of, and each of them.
	{name: "sim/systems/own", foreign: none, own: []string{"effects", "sim/oracle", "sim/plan"}},
	{name: "sim/systems/directory", foreign: none,
		own: append(memory(), "protocol/sharedlog", "fsm/directory/...", "sim/draw", "sim/oracle", "sim/plan",
			"sim/systems/own")},
	// The list of flows beside those of prefill and decode, and each of them: it knows the machine's, and no other.
	{name: "sim/systems", foreign: none, own: []string{"sim/condense", "sim/expand", "sim/explore", "sim/plan",
		"sim/systems/..."}},
	// Engines in processes of their own do what flows do.
	{name: "sim/systems/agent", foreign: none, own: []string{"effects", "protocol", "fsm/...", "sim/draw", "sim/expand",
		"sim/explore", "sim/oracle", "sim/plan", "sim/systems/layerwise", "sim/systems/p2p", "sim/systems/pd", "sim/world"}},
	{name: "sim/systems/...", foreign: none, own: []string{"effects", "protocol", "fsm/...", "sim/draw", "sim/expand",
		"sim/explore", "sim/oracle", "sim/plan", "sim/systems/own", "sim/systems/pd", "sim/world"}},
	// What a model and a link leave of a transfer: ranks, and time that is counted.
	{name: "sim/exposed", own: []string{"effects", "protocol", "fsm/..."}, foreign: none},
	{name: "sim/...",
		own: []string{
			"effects", "identity", "contract", "protocol", "protocol/foreign", "fsm/...", "snapshot", "sim/...",
		},
		foreign: []string{"go.yaml.in/yaml/v4", "pgregory.net/rapid"}},

	{name: "runtime/device", own: []string{"effects", "runtime/plane"}, foreign: none},
	{name: "runtime/plane", own: []string{"identity", "effects", "runtime/plane/backing"}, foreign: none},
	// Memory that is really there, for pools of every kind.
	{name: "runtime/plane/backing", own: none, foreign: none},
	// Frames and blobs, which every plane's connections have.
	{name: "runtime/plane/framing", own: []string{"identity"}, foreign: none},
	{name: "runtime/plane/internal/...", own: []string{"effects", "identity", "runtime/internal/door",
		"runtime/internal/nowait", "runtime/internal/loglimit", "runtime/internal/stepper", "runtime/plane",
		"runtime/plane/framing", "runtime/plane/internal/..."}},
	{name: "runtime/plane/planetest",
		own: []string{"effects", "identity", "contract", "runtime/internal/proctest", "runtime/plane",
			"runtime/plane/liar"}},
	// The plane over libnixl serves memory by address, and knows neither the node nor whose memory it is.
	{name: "runtime/plane/nixl", foreign: identifiers, own: []string{"effects", "identity", "fsm/communicator",
		"runtime/internal/door", "runtime/internal/loglimit", "runtime/libnixl", "runtime/plane", "runtime/plane/epochs",
		"runtime/plane/framing"}},
	// What the leased planes have in common: it serves memory by address, and knows no library.
	{name: "runtime/plane/epochs", foreign: identifiers, own: []string{"effects", "identity", "fsm/communicator",
		"runtime/internal/door", "runtime/internal/loglimit", "runtime/plane", "runtime/plane/framing"}},
	{name: "runtime/plane/...",
		own: []string{"effects", "identity", "runtime/internal/peercred", "runtime/plane", "runtime/plane/framing",
			"runtime/plane/internal/..."}},
	{name: "runtime/control", own: []string{"effects"}, foreign: none},
	{name: "runtime/control/controltest",
		own: []string{"effects", "contract", "runtime/control", "runtime/control/reserve"}},
	// ZeroMQ's wire protocol, which knows no socket. libzmq is at the other end of its tests, which no wall holds.
	{name: "runtime/control/zmq/zmtp", own: none, foreign: none},
	{name: "runtime/control/zmq", foreign: none,
		own: []string{"effects", "runtime/control", "runtime/control/internal/...", "runtime/control/zmq/zmtp",
			"runtime/internal/..."}},
	// The same protocol by libzmq: the one package of ours that is not a test's and calls it.
	{name: "runtime/control/libzmq", foreign: []string{"github.com/pebbe/zmq4"},
		own: []string{"effects", "runtime/control", "runtime/control/internal/...", "runtime/internal/..."}},
	// What both have in common, whatever moves the bytes.
	{name: "runtime/control/internal/...", own: []string{"effects", "runtime/control", "runtime/internal/..."},
		foreign: none},
	// Plain sockets of libzmq, at the other end of tests.
	{name: "runtime/control/controltest/plaintest",
		own:     []string{"effects", "runtime/control", "runtime/control/controltest"},
		foreign: []string{"github.com/pebbe/zmq4"}},
	// Where directories keep the log that they share.
	{name: "runtime/control/valkey",
		own:     []string{"effects", "protocol/sharedlog", "runtime/control", "runtime/internal/loglimit"},
		foreign: []string{"github.com/gomodule/redigo/redis"}},
	{name: "runtime/control/valkey/server", own: none, foreign: none},
	{name: "runtime/control/valkey/valkeytest",
		own: []string{"runtime/control/reserve", "runtime/control/valkey/server"}, foreign: none},
	{name: "runtime/control/...", own: []string{"effects", "runtime/control"}},
	{name: "runtime/config", own: []string{"effects", "protocol", "fsm/..."},
		foreign: []string{"go.yaml.in/yaml/v4"}},
	// Builds a C library; no Go code of ours stands on it but tests.
	{name: "runtime/softnpu", own: none, foreign: none},
	// Loads C libraries, and knows none of them.
	{name: "runtime/sharedlib", own: none, foreign: none},
	// A binding, and beside it what its tests ask of the software NPU: both stand on C alone.
	{name: "runtime/acl/...", own: []string{"runtime/sharedlib"}, foreign: none},
	// The binding of libnixl, and what tests over it start from.
	{name: "runtime/libnixl", own: []string{"runtime/sharedlib"}, foreign: none},
	{name: "runtime/libnixl/...", own: []string{"runtime/libnixl"}, foreign: none},
	// Plain engines are reached by libnixl and by side channels, which are handed to it.
	{name: "runtime/attach", own: []string{"effects", "protocol", "fsm/session", "runtime", "runtime/internal/door",
		"runtime/internal/netpoll", "runtime/internal/nowait", "runtime/internal/peercred"}, foreign: []string{"golang.org/x/sys/unix"}},
	// The front of engines knows HTTP and metrics alone, and no node.
	{name: "runtime/proxy", own: []string{"runtime/internal/door", "runtime/internal/loglimit"},
		foreign: with(identifiers, "github.com/prometheus/client_golang/prometheus/...")},
	{name: "runtime/gateway", own: []string{"effects", "protocol", "fsm/gateway", "fsm/rank/memory/geometry", "fsm/rank/flows/register",
		"runtime/config", "runtime/control", "runtime/internal/door", "runtime/internal/loglimit", "runtime/libnixl",
		"runtime/plane", "runtime/plane/epochs"},
		foreign: []string{"golang.org/x/sys/unix"}},
	// The binding of HCCL, whose calls want a context of AscendCL current on their thread.
	{name: "runtime/hccl/comm/...", own: []string{"runtime/acl", "runtime/sharedlib"}, foreign: none},
	// The plane over HCCL serves memory by address, and knows neither the node nor the device that the memory is on.
	{name: "runtime/hccl", foreign: identifiers, own: []string{"effects", "identity", "fsm/communicator", "runtime/acl",
		"runtime/hccl/comm", "runtime/internal/door", "runtime/internal/loglimit", "runtime/plane", "runtime/plane/epochs",
		"runtime/plane/framing"}},
	// What tests of that plane start from, here and elsewhere.
	{name: "runtime/hccl/hccltest", own: []string{"runtime/acl", "runtime/acl/acltest", "runtime/hccl",
		"runtime/hccl/comm", "runtime/plane", "runtime/plane/planetest", "runtime/softnpu"}, foreign: none},
	// An NPU's memory, handed to a node as its device; engines of demos and tests stand on it.
	{name: "runtime/npu", foreign: none,
		own: []string{"effects", "runtime/acl", "runtime/device", "runtime/plane", "runtime/plane/backing"}},
	{name: "runtime/npu/...", own: []string{"runtime/acl", "runtime/device", "runtime/npu"}, foreign: none},
	// What several drivers stand on: who may come in, names, logs. They know no driver.
	// Knows by type what of a state may not be told.
	{name: "runtime/internal/postmortem",
		own: []string{"effects", "identity", "snapshot", "fsm/prng", "fsm/table"}},
	{name: "runtime/internal/...", own: []string{"effects", "runtime/internal/..."}},
	// The event loop runs planes and sockets that are handed to it; it does not know them.
	{name: "runtime/...", own: []string{"effects", "identity", "protocol", "fsm/...", "runtime/..."},
		not: []string{"runtime/plane/shm/...", "runtime/plane/tcp/...", "runtime/control/zmq/...",
			"runtime/control/libzmq", "runtime/control/valkey/...",
			"runtime/hccl/...", "runtime/acl/...", "runtime/npu/...", "runtime/libnixl/...", "runtime/plane/nixl/..."}},

	// Checks of what reads a peer's bytes, for users to import: no more than the readers and the library that they are
	// held against.
	{name: "fuzz/...", own: []string{"protocol/..."}, foreign: []string{"github.com/vmihailenco/msgpack/v5"}},
	// Runs seeds for tools/mutants, which builds it once for each defect.
	{name: "tools/mutants/seek", own: []string{"sim", "sim/oracle"}, foreign: none},
	// Runs the command of two commits, so it must not be compiled against the code of either.
	{name: "tools/guard", own: none, foreign: none},
	// A real node, between two real engines.
	{name: "tools/interop/between", own: []string{"runtime/..."}, foreign: none},
	{name: "tools/compare/peer", own: []string{"effects", "runtime/..."}, foreign: []string{"github.com/pebbe/zmq4"}},
	// What tests of machines play their transcripts by; no machine may reach it.
	{name: "tools/transcript", own: []string{"effects"}, foreign: []string{"github.com/cockroachdb/datadriven"}},
	{name: "tools/...", own: []string{"tools/..."}},
	{name: "examples/...", own: []string{"effects", "runtime/..."}},
	{name: "cmd/...", own: []string{"effects", "identity", "protocol", "fsm/...", "sim/...", "runtime/...", "cmd/..."}},
	// What has no row is allowed nothing of ours until it has one.
	{name: "...", own: none},
}

// memory is what rooms of pages stand on.
func memory() []string {
	return []string{"effects", "protocol", "fsm/prng", "fsm/table", "fsm/rank/kernel/...", "fsm/rank/env", "fsm/rank/memory/..."}
}

// peers is what rooms of peers stand on beside that.
func peers() []string { return append(memory(), "identity", "fsm/rank/peers/...") }

// shared is what all flows stand on.
func shared() []string {
	return append(peers(), "fsm/rank/flows/flow", "fsm/rank/flows/engine", "fsm/rank/flows/deferred")
}

func with(list []string, more ...string) []string { return slices.Concat(list, more) }

// matches reports whether a pattern, with or without /..., covers path.
func matches(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == below || strings.HasPrefix(path, below+"/")
	}
	return path == pattern
}

func covered(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

func roomOf(path string) room {
	return rooms[slices.IndexFunc(rooms, func(r room) bool { return matches(r.name, path) })]
}

// breach says why a package in r may not import path, or "".
func (r room) breach(path string) string {
	own, isOwn := strings.CutPrefix(path, module+"/")
	host, _, _ := strings.Cut(path, "/")
	switch {
	case isOwn && !covered(r.own, own):
		return "its room may not import that package of ours"
	case isOwn && covered(r.not, own):
		return "it is handed that room's work through an interface"
	case isOwn || path == module:
		return ""
	case strings.Contains(host, "."):
		if r.foreign != nil && !covered(r.foreign, path) {
			return "its room may not import that module"
		}
	case r.std != nil && !slices.Contains(r.std, path):
		return "its room is pure and that package is not on its list"
	}
	return ""
}

type listed struct {
	ImportPath string
	Imports    []string
}

// list returns this module's packages with their imports, tests left out, by path below the module.
func list(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	packages := map[string][]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[strings.TrimPrefix(p.ImportPath, module+"/")] = p.Imports
	}
}

func TestWalls(t *testing.T) {
	packages := list(t)
	for _, must := range []string{"effects", "protocol", "fsm/rank", "fsm/rank/memory", "fsm/communicator", "sim", "runtime",
		"cmd/kvferry"} {
		if _, ok := packages[must]; !ok {
			t.Errorf("there is no package %s: the wall around it stands around nothing", must)
		}
	}
	for path, imports := range packages {
		r := roomOf(path)
		for _, imported := range imports {
			if why := r.breach(imported); why != "" {
				t.Errorf("%s imports %s: %s (row %q)", path, imported, why, r.name)
			}
		}
	}
}

// TestPureAllTheWay follows the imports of the pure rooms through our own packages: a package that is
// allowed must not bring in what is not. (Other modules are beyond the wall: uuid knows the time.)
func TestPureAllTheWay(t *testing.T) {
	packages := list(t)
	for path := range packages {
		if !matches("effects", path) && !matches("fsm/...", path) {
			continue
		}
		seen := map[string]bool{}
		var walk func(at string, way []string)
		walk = func(at string, way []string) {
			if seen[at] {
				return
			}
			seen[at] = true
			way = with(way, at)
			for _, imported := range packages[at] {
				if own, ok := strings.CutPrefix(imported, module+"/"); ok {
					walk(own, way)
				} else if !strings.Contains(imported, ".") && !slices.Contains(pureStd, imported) {
					t.Errorf("%s reaches %s by way of %s", path, imported, strings.Join(way, " -> "))
				}
			}
		}
		walk(path, nil)
	}
}

func TestBreach(t *testing.T) {
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"effects", "slices", true},
		{"effects", "time", false},
		{"effects", module + "/protocol", false},
		{"fsm/rank/memory/store", module + "/fsm/rank/peers/link", false},
		{"fsm/rank/memory/store", module + "/fsm/rank/memory", true},
		{"fsm/rank/flows/push", module + "/fsm/rank/flows/pull", false},
		{"fsm/rank", module + "/fsm/rank/flows/pull", true},
		{"fsm/rank", "unsafe", false},
		{"fsm/rank", "github.com/google/uuid", false},
		{"protocol", "github.com/google/uuid", false},
		{"protocol", "github.com/vmihailenco/msgpack/v5", false},
		{"protocol/internal/scan", "sync", false},
		{"sim", "pgregory.net/rapid", true},
		{"sim", "github.com/pebbe/zmq4", false},
		{"sim", module + "/runtime", false},
		{"runtime", module + "/runtime/plane", true},
		{"runtime", module + "/runtime/plane/shm", false},
		{"runtime", module + "/runtime/control/zmq", false},
		{"runtime", module + "/runtime/acl", false},
		{"runtime/acl", module + "/effects", false},
		{"runtime/acl", module + "/runtime/plane", false},
		{"runtime/plane/tcp", module + "/runtime/plane", true},
		{"runtime/plane/tcp", module + "/runtime/plane/shm", false},
		{"runtime/plane/tcp", module + "/fsm/rank/memory", false},
		{"runtime/control/zmq", "github.com/pebbe/zmq4", false},
		{"runtime/control/libzmq", "github.com/pebbe/zmq4", true},
		{"runtime", module + "/runtime/control/libzmq", false},
		{"cmd/kvferry", module + "/runtime/plane/shm", true},
		{"runtime", module + "/cmd/kvferry", false},
		{"newroom", module + "/effects", false},
	} {
		if why := roomOf(c.from).breach(c.to); (why == "") != c.ok {
			t.Errorf("%s importing %s: got %q, want allowed %v", c.from, c.to, why, c.ok)
		}
	}
}
