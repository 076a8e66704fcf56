package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvferry/kvferry/fsm/rank/metrics"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/attach"
	"github.com/kvferry/kvferry/runtime/directory"
)

// A Source is a part of the process that operators see.
type Source struct {
	// Name is the name of the part in the state, such as "node".
	Name string
	// Collectors give the metrics.
	Collectors []prometheus.Collector
	// Checks say whether the part works.
	Checks []Check
	// State returns what the state of the process says of the part; it is encoded as JSON. It must return by the time
	// that ctx ends.
	State func(ctx context.Context) any
	// Pages serves further paths, such as /holds.
	Pages map[string]http.HandlerFunc
	// Actions serves requests that do something, such as POST /recording. A page of another site cannot make a browser
	// send them.
	Actions map[string]http.HandlerFunc
}

// A Check is a condition that a process should fulfil.
type Check struct {
	Name string
	Kind CheckKind
	// Probe returns why the condition does not hold, or nil. It must return by the time that ctx ends.
	Probe func(ctx context.Context) error
}

// A CheckKind says what follows if a condition does not hold.
type CheckKind uint8

// The kinds of checks.
const (
	// CheckNote shows a problem of a process that works. Example: a pool without a free page is backpressure, and taking
	// the process out of service would only make its peers fail.
	CheckNote  CheckKind = iota
	CheckReady           // the process takes no work, and is not ready
	CheckLive            // the process must be replaced
)

// machineTimeout is how long metrics, checks and the state wait for a machine.
const machineTimeout = time.Second

// errStuck is the error of a check that waited for a machine in vain.
var errStuck = fmt.Errorf("the event loop has not answered within %v: read /debug/pprof/goroutine?debug=2", machineTimeout)

// Node returns the source for a node. The timer is the one that the node was opened with, or nil.
func Node(n *runtime.Node, t *Timer) Source {
	s := Source{Name: "node", Collectors: []prometheus.Collector{nodeCollector{n}}, State: func(ctx context.Context) any {
		return nodeState(n, n.Snapshot(ctx))
	}, Pages: map[string]http.HandlerFunc{
		"/holds":      func(w http.ResponseWriter, r *http.Request) { serveHolds(w, r, n) },
		"/peers":      func(w http.ResponseWriter, r *http.Request) { servePeers(w, r, n) },
		"/operations": func(w http.ResponseWriter, r *http.Request) { serveOperations(w, r, n) },
		"/recording":  func(w http.ResponseWriter, _ *http.Request) { serveRecording(w, n) },
	}, Actions: map[string]http.HandlerFunc{
		"/recording": func(w http.ResponseWriter, _ *http.Request) { saveRecording(w, n) },
	}}
	if t != nil {
		s.Collectors = append(s.Collectors, t.Collectors()...)
		s.Pages["/transfers"] = t.transfers.serveTransfers
	}
	s.Checks = []Check{
		{Name: "node", Kind: CheckLive, Probe: func(context.Context) error {
			if n.State() == runtime.StateFailed {
				return fmt.Errorf("an assertion failed: %w", n.Err())
			}
			return nil
		}},
		{Name: "loop", Kind: CheckLive, Probe: func(ctx context.Context) error {
			if s := n.Snapshot(ctx); !s.HasRank && s.State != runtime.StateClosed && s.State != runtime.StateFailed {
				return errStuck
			}
			return nil
		}},
		{Name: "serving", Kind: CheckReady, Probe: func(context.Context) error {
			if state := n.State(); state != runtime.StateServing {
				return fmt.Errorf("the node is %s and takes no new work", state)
			}
			return nil
		}},
		{Name: "pool", Probe: func(ctx context.Context) error { return checkPool(n.Snapshot(ctx)) }},
	}
	return s
}

// checkPool returns an error if requests of peers wait for pages, and no page is free or could be made free.
func checkPool(s runtime.Snapshot) error {
	r := &s.Rank
	if !s.HasRank || r.PagesFree+r.PagesEvictable > 0 || r.PendingRequests == 0 {
		return nil
	}
	return fmt.Errorf("no page of %d is free, and %d requests of peers wait: %d pages are granted, %d quarantined, %d leased", r.PagesTotal,
		r.PendingRequests, r.PagesGranted, r.PagesQuarantined, r.PagesLeased)
}

// nodeInfo is the state of a node.
type nodeInfo struct {
	State       runtime.NodeState `json:"state"`
	Incarnation string            `json:"incarnation"`
	Role        string            `json:"role"`
	Sides       []string          `json:"sides"`
	PageBytes   int               `json:"page_bytes"`
	Servers     []serverInfo      `json:"servers"`
	// Stuck means that the machine did not answer, so that there are no counts.
	Stuck  bool           `json:"stuck,omitempty"`
	Pages  []pagesInfo    `json:"pages,omitempty"`
	Tables map[string]int `json:"tables,omitempty"`
	Limits map[string]int `json:"limits,omitempty"`
	// WaitsFor says what a drain waits for.
	WaitsFor map[string]int `json:"waits_for,omitempty"`
	Facts    []factInfo     `json:"facts"`
	// Commands counts commands in progress, and commands whose memory is still in use.
	Commands int `json:"commands"`
}

type serverInfo struct {
	Channel string `json:"channel"`
	Host    string `json:"host"`
	Port    uint16 `json:"port"`
}

type pagesInfo struct {
	Pool  string         `json:"pool"`
	Total int            `json:"total"`
	Count map[string]int `json:"count"`
}

type factInfo struct {
	Fact  string `json:"fact"`
	Code  string `json:"code"`
	Times uint64 `json:"times"`
	Items uint64 `json:"items"`
}

func nodeState(n *runtime.Node, s runtime.Snapshot) nodeInfo {
	x := nodeInfo{State: s.State, Incarnation: uuid.UUID(n.Incarnation()).String(), Role: n.Role(), Sides: n.Sides(), PageBytes: n.PageBytes(),
		Stuck: !s.HasRank && s.State != runtime.StateClosed && s.State != runtime.StateFailed, Commands: s.CommandsInUse,
		Facts: []factInfo{}, Limits: map[string]int{}}
	for _, server := range n.Servers() {
		x.Servers = append(x.Servers, serverInfo{server.Channel.String(), server.Addr.Host, server.Addr.Port})
	}
	for _, l := range n.TableLimits() {
		x.Limits[l.Table] = int(l.Limit)
	}
	for _, f := range s.Facts {
		x.Facts = append(x.Facts, factInfo{f.Fact.String(), f.Code.String(), f.Times, f.Items})
	}
	if !s.HasRank {
		return x
	}
	for _, u := range s.Unfinished {
		if x.WaitsFor == nil {
			x.WaitsFor = map[string]int{}
		}
		x.WaitsFor[u.Kind] += u.Count
	}
	x.Tables = map[string]int{}
	for _, r := range metrics.AppendGauges(nil, &s.Rank) {
		switch r.Metric {
		case metrics.TableRows:
			x.Tables[r.Labels[0]] = int(r.Value)
		case metrics.PagesCapacity:
			x.Pages = append(x.Pages, pagesInfo{Pool: r.Labels[0], Total: int(r.Value), Count: map[string]int{}})
		case metrics.Pages:
			x.Pages[len(x.Pages)-1].Count[r.Labels[1]] = int(r.Value)
		}
	}
	return x
}

// Directory returns the source for a directory.
func Directory(d *directory.Directory) Source {
	return Source{Name: "directory", Collectors: []prometheus.Collector{directoryCollector{d}},
		Checks: []Check{
			{Name: "loop", Kind: CheckLive, Probe: func(ctx context.Context) error {
				if _, answered := d.Snapshot(ctx); !answered {
					return errStuck
				}
				return nil
			}},
			{Name: "log", Probe: func(ctx context.Context) error {
				if s, _ := d.Snapshot(ctx); s.LogDown {
					return errors.New("the log that directories share cannot be reached, so that lookups miss what other directories are told")
				}
				return nil
			}},
		},
		State: func(ctx context.Context) any {
			s, answered := d.Snapshot(ctx)
			return directoryInfo{s.Instances, s.Workers, s.FromReplicas, s.Locations, s.Syncs, s.Chunks - s.Retired, s.Bytes, s.LogDown, !answered}
		}}
}

// directoryInfo is the state of a directory.
type directoryInfo struct {
	Instances    int  `json:"instances"`
	Workers      int  `json:"workers"`
	FromReplicas int  `json:"workers_of_other_directories"`
	Locations    int  `json:"locations"`
	Syncs        int  `json:"syncs"`
	Chunks       int  `json:"chunks"`
	Bytes        int  `json:"bytes"`
	LogDown      bool `json:"log_down"`
	Stuck        bool `json:"stuck,omitempty"`
}

// Agent returns the source for the engines that are attached to an agent.
func Agent(s *attach.Server) Source {
	return Source{Name: "agent", Collectors: []prometheus.Collector{agentCollector{s}},
		State: func(context.Context) any { return s.Counts() }}
}

// Traces returns the source for the export of traces, of which counts returns the spans.
func Traces(counts func() (exported, dropped uint64)) Source {
	return Source{Name: "traces", Collectors: []prometheus.Collector{traceCollector{counts}}}
}
