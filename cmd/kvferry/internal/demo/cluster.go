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

// decoders is the number of decode processes. The last decode process is killed during the replay.
const decoders = 2

// A cluster is the set of the demo's processes: one proxy, and either one prefill and two decode nodes or a ring of
// nodes that have both roles.
type cluster struct {
	ground
	proxy   *process
	prefill *seat // nil in a ring
	decodes []decode

	refused []string // nodes that refused their first start as the faults require

	mu       sync.Mutex
	all      []*process               // node processes, in the order in which they started
	notified map[string]chan struct{} // by request ID; closed when the proxy is notified
}

// A decodeNode is the slot of a decode node, with the node's address for peers and the limit of its chunks in flight.
type decode struct {
	seat
	peer agent.Peer
	room *admission
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
type place struct {
	name, role string
	number     int    // number of the node and of its NPU
	more, own  string // configuration lines at the top level, and configuration lines below extra_config.kvferry
	pages      int
}

// configureSlot writes the node's configuration and sets the program and the environment of the slot.
func (c *cluster) furnish(at *seat, p place, o *Options) error {
	s := o.shape
	device := "cpu"
	if o.NPU != nil {
		if device = fmt.Sprintf("npu:%d", p.number); o.Mode == Layerwise && p.role == "receiver" {
			device = "cpu" // The engine takes the layers from host memory.
		}
		p.own += o.NPU.own(o.Mode, p.number)
		at.env = o.NPU.env(o.Mode, p.name, p.number, c.dir, s)
	}
	text := fmt.Sprintf(configText, p.role, o.Plane, s.chunkTokens, p.pages*s.pageBytes(), device, p.more, s.layers,
		s.kvHeads, s.headSize, p.own)
	path := filepath.Join(c.dir, p.name+".yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration of %s: %w", p.name, err)
	}
	at.program = program{name: p.name, args: []string{"node", "--config", path, "--commands"}, log: c.log, began: c.begins}
	return nil
}

// seatNode starts a node's first process. If the start was refused as the faults require, seatNode starts the node
// again.
func (c *cluster) seatNode(ctx context.Context, at *seat, p place, o *Options) error {
	if err := c.furnish(at, p, o); err != nil {
		return err
	}
	err := at.take(ctx)
	var no *refusal
	if o.NPU != nil && errors.As(err, &no) && o.NPU.faults.refused(no.said.Code) {
		c.refused = append(c.refused, p.name+": "+no.said.Code)
		err = at.take(ctx)
	}
	return err
}

// recordProcess records a process that was started, even if the process will not serve.
func (c *cluster) begins(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, p)
}

// startedProcesses returns all node processes that were ever started.
func (c *cluster) begun() []*process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

func startCluster(ctx context.Context, o *Options) (*cluster, error) {
	on, err := newGround(o.Log)
	if err != nil {
		return nil, err
	}
	c := &cluster{ground: on, notified: map[string]chan struct{}{}}
	if err := c.startAll(ctx, o); err != nil {
		c.abort()
		return nil, err
	}
	return c, nil
}

func (c *cluster) startAll(ctx context.Context, o *Options) error {
	if o.NPU != nil {
		if err := o.NPU.prepare(c.dir); err != nil {
			return err
		}
	}
	ports, err := c.reserve(1)
	if err != nil {
		return err
	}
	proxy := program{name: "proxy", args: []string{"demo-proxy", "--port", strconv.Itoa(int(ports[0]))}, log: c.log,
		notes: c.onProxyLine}
	if c.proxy, err = start(ctx, proxy); err != nil {
		return err
	}
	tells := fmt.Sprintf("pd_proxy_host: %s\npd_proxy_port: %d\n", host, ports[0])
	if o.Ring {
		return c.startRing(ctx, o, tells)
	}
	return c.startSides(ctx, o, tells)
}

// startSides starts the prefill node and the decode nodes. The proxyLines are the configuration of the prefill node's
// notifications to the proxy.
func (c *cluster) startSides(ctx context.Context, o *Options, tells string) error {
	ports, err := c.reserve(2)
	if err != nil {
		return err
	}
	c.prefill = new(seat)
	err = c.seatNode(ctx, c.prefill, place{name: "prefill", role: "sender", more: tells +
		o.Mode.prefill(ports[0], ports[1], o.shape) + o.recalls(0), pages: o.shape.prefillPages}, o)
	if err != nil {
		return err
	}
	c.decodes = make([]decode, decoders)
	for i, room := range o.Mode.rooms(o.shape) {
		err := c.seatDecode(ctx, &c.decodes[i], room, place{name: fmt.Sprintf("decode-%d", i), role: "receiver",
			number: 1 + i, more: o.Mode.decode(), own: o.Mode.own(o.shape), pages: o.Mode.decodePages(o.shape)}, o)
		if err != nil {
			return err
		}
	}
	return nil
}

// seatDecode starts a node that receives puts, on ports that it reserves for the node.
func (c *cluster) seatDecode(ctx context.Context, d *decode, room *admission, p place, o *Options) error {
	ports, err := c.reserve(3)
	if err != nil {
		return err
	}
	d.peer, d.room = agent.Peer{Host: host, InitPort: ports[0], AllocPort: ports[1], QueryPort: ports[2]}, room
	p.more = fmt.Sprintf("pd_peer_host: %s\npd_peer_init_port: %d\npd_peer_alloc_port: %d\n%s%s", host, ports[0], ports[1],
		o.recalls(ports[2]), p.more)
	p.own += o.leases()
	return c.seatNode(ctx, &d.seat, p, o)
}

// route returns the node that computes a job and the node that decodes the job.
func (c *cluster) route(job int) (from *seat, to *decode) {
	to = &c.decodes[job%len(c.decodes)]
	if c.prefill != nil {
		return c.prefill, to
	}
	return &c.decodes[(job+len(c.decodes)-1)%len(c.decodes)].seat, to
}

// victims returns the nodes to kill, in order: a decode node and the prefill node, or two nodes of the ring.
func (c *cluster) victims() [2]*seat {
	last := &c.decodes[len(c.decodes)-1].seat
	if c.prefill != nil {
		return [2]*seat{last, c.prefill}
	}
	return [2]*seat{last, &c.decodes[0].seat}
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

// expect returns a channel that is closed when the proxy is notified of the request.
func (c *cluster) expect(request string) <-chan struct{} {
	w := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notified[request] = w
	return w
}

func (c *cluster) forget(request string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.notified, request)
}

// nodeProcesses returns the current processes of all nodes, without the proxy.
func (c *cluster) nodes() []*process {
	var all []*process
	if c.prefill != nil {
		all = append(all, c.prefill.now())
	}
	for i := range c.decodes {
		all = append(all, c.decodes[i].now())
	}
	return all
}

// stopAll ends all processes in order and returns an error text for each process that did not end well. The responses
// of the processes stay available.
func (c *cluster) stop() (problems []string) {
	for _, p := range append(c.nodes(), c.proxy) {
		if err := p.stop(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// abort kills all processes and releases their ports and files.
func (c *cluster) abort() {
	for _, p := range append(c.nodes(), c.proxy) {
		if p != nil {
			p.kill()
		}
	}
	c.leaveNothing()
}
