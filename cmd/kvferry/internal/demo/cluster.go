package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

const host = "127.0.0.1"

// decodeNodes is the number of decode processes. The last decode process is killed during the replay.
const decodeNodes = 2

// A cluster is the set of the demo's processes: one proxy, and either one prefill and two decode nodes or a ring of
// nodes that have both roles.
type cluster struct {
	workspace
	proxy   *process
	prefill *slot // nil in a ring
	decodes []decodeNode

	refusedStarts []string // nodes that refused their first start as the faults require

	mu       sync.Mutex
	started  []*process               // node processes, in the order in which they started
	notified map[string]chan struct{} // by request ID; closed when the proxy is notified
}

// A decodeNode is the slot of a decode node, with the node's address for peers and the limit of its chunks in flight.
type decodeNode struct {
	slot
	peer      agent.Peer
	admission *admission
}

// configText is the format of a node's configuration, in LMCache's keys.
const configText = `enable_pd: true
pd_role: %s
transfer_channel: %s
chunk_size: %d
pd_buffer_size: %d
pd_buffer_device: %s
%sextra_config:
  kvferry:
    layout: {num_layers: %d, num_kv_heads: %d, head_size: %d, dtype: bfloat16}
    peer_share_pct: 100
    put_timeout: 15
    retention: 10
    log: {level: error}
%s`

// A nodeSpec describes a node to start.
type nodeSpec struct {
	name, role          string
	number              int    // number of the node and of its NPU
	lines, kvferryLines string // configuration lines at the top level, and configuration lines below extra_config.kvferry
	poolPages           int
}

// configureSlot writes the node's configuration and sets the program and the environment of the slot.
func (c *cluster) configureSlot(at *slot, p nodeSpec, o *Options) error {
	s := o.shape
	device := "cpu"
	if o.NPU != nil {
		if device = fmt.Sprintf("npu:%d", p.number); o.Mode == Layerwise && p.role == "receiver" {
			device = "cpu" // The engine takes the layers from host memory.
		}
		p.kvferryLines += o.NPU.kvferryLines(o.Mode, p.number)
		at.processEnv = o.NPU.processEnv(o.Mode, p.name, p.number, c.dir, s)
	}
	text := fmt.Sprintf(configText, p.role, o.Plane, s.chunkTokens, p.poolPages*s.pageBytes(), device, p.lines, s.layers,
		s.kvHeads, s.headSize, p.kvferryLines)
	path := filepath.Join(c.dir, p.name+".yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration of %s: %w", p.name, err)
	}
	at.release = c.release
	at.program = program{name: p.name, args: []string{"node", "--config", path, "--commands"}, log: c.log, onStart: c.recordProcess}
	return c.certs.prepare(&at.program, roleOf(p.role), nodeVariable)
}

// startNode starts a node's first process. If the start was refused as the faults require, startNode starts the node
// again.
func (c *cluster) startNode(ctx context.Context, at *slot, p nodeSpec, o *Options) error {
	if err := c.configureSlot(at, p, o); err != nil {
		return err
	}
	err := at.startFirst(ctx)
	var refusalErr *refusal
	if o.NPU != nil && errors.As(err, &refusalErr) && o.NPU.faults.expectsRefusal(refusalErr.response.Code) {
		c.refusedStarts = append(c.refusedStarts, p.name+": "+refusalErr.response.Code)
		err = at.startFirst(ctx)
	}
	return err
}

// recordProcess records a process that was started, even if the process will not serve.
func (c *cluster) recordProcess(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = append(c.started, p)
}

// startedProcesses returns all node processes that were ever started.
func (c *cluster) startedProcesses() []*process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.started)
}

func startCluster(ctx context.Context, o *Options) (*cluster, error) {
	ws, err := newWorkspace(o)
	if err != nil {
		return nil, err
	}
	c := &cluster{workspace: ws, notified: map[string]chan struct{}{}}
	if err := c.startAll(ctx, o); err != nil {
		c.killAll()
		return nil, err
	}
	return c, nil
}

func (c *cluster) startAll(ctx context.Context, o *Options) error {
	if o.NPU != nil {
		if err := o.NPU.makeReportDir(c.dir); err != nil {
			return err
		}
	}
	ports, err := c.reservePorts(1)
	if err != nil {
		return err
	}
	proxy := program{name: "proxy", path: c.release.programPath("proxy", 1), log: c.log, onLine: c.onProxyLine,
		args: []string{"demo-proxy", "--port", strconv.Itoa(int(ports[0]))}}
	if c.certs != nil {
		folder, err := c.certs.issue("proxy", "proxy")
		if err != nil {
			return err
		}
		proxy.args = append(proxy.args, "--certs", folder)
	}
	if c.proxy, err = startProcess(ctx, proxy); err != nil {
		return err
	}
	proxyLines := fmt.Sprintf("pd_proxy_host: %s\npd_proxy_port: %d\n", host, ports[0])
	if o.Ring {
		return c.startRing(ctx, o, proxyLines)
	}
	return c.startSides(ctx, o, proxyLines)
}

// startSides starts the prefill node and the decode nodes. The proxyLines are the configuration of the prefill node's
// notifications to the proxy.
func (c *cluster) startSides(ctx context.Context, o *Options, proxyLines string) error {
	ports, err := c.reservePorts(2)
	if err != nil {
		return err
	}
	c.prefill = new(slot)
	err = c.startNode(ctx, c.prefill, nodeSpec{name: "prefill", role: "sender", lines: proxyLines +
		o.Mode.prefillLines(ports[0], ports[1], o.shape) + o.recallLines(0), poolPages: o.shape.prefillPages}, o)
	if err != nil {
		return err
	}
	c.decodes = make([]decodeNode, decodeNodes)
	for i, limit := range o.Mode.newAdmissions(o.shape) {
		err := c.startDecode(ctx, &c.decodes[i], limit, nodeSpec{name: fmt.Sprintf("decode-%d", i), role: "receiver",
			number: 1 + i, lines: o.Mode.decodeLines(), kvferryLines: o.Mode.kvferryLines(o.shape), poolPages: o.Mode.decodePages(o.shape)}, o)
		if err != nil {
			return err
		}
	}
	return nil
}

// startDecode starts a node that receives puts, on ports that it reserves for the node.
func (c *cluster) startDecode(ctx context.Context, d *decodeNode, limit *admission, p nodeSpec, o *Options) error {
	ports, err := c.reservePorts(3)
	if err != nil {
		return err
	}
	d.peer, d.admission = agent.Peer{Host: host, InitPort: ports[0], AllocPort: ports[1], QueryPort: ports[2]}, limit
	p.lines = fmt.Sprintf("pd_peer_host: %s\npd_peer_init_port: %d\npd_peer_alloc_port: %d\n%s%s", host, ports[0], ports[1],
		o.recallLines(ports[2]), p.lines)
	p.kvferryLines += o.leaseLines()
	return c.startNode(ctx, &d.slot, p, o)
}

// routeJob returns the node that computes a job and the node that decodes the job.
func (c *cluster) routeJob(job int) (from *slot, to *decodeNode) {
	to = &c.decodes[job%len(c.decodes)]
	if c.prefill != nil {
		return c.prefill, to
	}
	return &c.decodes[(job+len(c.decodes)-1)%len(c.decodes)].slot, to
}

// nodesToKill returns the nodes to kill, in order: a decode node and the prefill node, or two nodes of the ring.
func (c *cluster) nodesToKill() [2]*slot {
	last := &c.decodes[len(c.decodes)-1].slot
	if c.prefill != nil {
		return [2]*slot{last, c.prefill}
	}
	return [2]*slot{last, &c.decodes[0].slot}
}

// A proxyLine is what the proxy process prints for each notification.
type proxyLine struct {
	Request string `json:"request"`
}

func (c *cluster) onProxyLine(line []byte) {
	var l proxyLine
	if json.Unmarshal(line, &l) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.notified[l.Request]; w != nil {
		close(w)
		delete(c.notified, l.Request) // A second notification must not close the channel again.
	}
}

// expectNotification returns a channel that is closed when the proxy is notified of the request.
func (c *cluster) expectNotification(request string) <-chan struct{} {
	w := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notified[request] = w
	return w
}

func (c *cluster) forgetNotification(request string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.notified, request)
}

// nodeProcesses returns the current processes of all nodes, without the proxy.
func (c *cluster) nodeProcesses() []*process {
	var all []*process
	for _, at := range c.slots() {
		all = append(all, at.currentProcess())
	}
	return all
}

// stopAll ends all processes in order and returns an error text for each process that did not end well. The responses
// of the processes stay available.
func (c *cluster) stopAll() (problems []string) {
	for _, p := range append(c.nodeProcesses(), c.proxy) {
		if err := p.stopAndWait(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// killAll kills all processes and releases their ports and files.
func (c *cluster) killAll() {
	for _, p := range append(c.nodeProcesses(), c.proxy) {
		if p != nil {
			p.killAndWait()
		}
	}
	c.cleanUp()
}
