package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// A sharingCluster is the set of processes of a replay by nodes that share: the directories, the instances that report
// their chunks to the directories, and the server of the directories' log.
type sharingCluster struct {
	workspace
	slots       []*slot
	peers       []agent.Peer // address of each instance
	admissions  []*admission // for each instance, the limit on chunks of requests in progress
	directories []*directoryNode
	logServer   *slot  // the server of the directories' log; nil if no server is installed
	logName     string // name of the log's server, or the reason that there is no server
}

// instanceText is the format of an instance's configuration, in LMCache's keys.
const instanceText = `enable_p2p: true
p2p_host: %[1]s
p2p_init_ports: [%[2]d]
p2p_lookup_ports: [%[3]d]
%[4]stransfer_channel: %[5]s
chunk_size: %[6]d
pd_buffer_size: %[7]d
pd_buffer_device: cpu
enable_controller: true
lmcache_instance_id: %[8]s
lmcache_worker_ports: [%[9]d]
lmcache_worker_heartbeat_time: 0.2
controller_pull_url: [%[10]s]
controller_reply_url: [%[11]s]
p2p_sync_lookup_cache_ttl: 0
extra_config:
%[15]s  p2p_lookup_timeout_s: 10
  p2p_sync_controller_lookup_timeout_ms: 5000
  kvferry:
    layout: {num_layers: %[12]d, num_kv_heads: %[13]d, head_size: %[14]d, dtype: bfloat16}
    peer_share_pct: 100
    engine_share_pct: 100
    put_timeout: 15
%[16]s    link: {backoff_max: 0.5}
    log: {level: error}
`

// directoryText is the format of a directory's configuration.
const directoryText = `controller_host: %s
controller_monitor_ports: {pull: %d, reply: %d, heartbeat: %d}
extra_config:
  kvferry:
    log: {level: error}
%s`

func startSharing(ctx context.Context, o *SharingOptions) (*sharingCluster, error) {
	ws, err := newWorkspace(&o.Options)
	if err != nil {
		return nil, err
	}
	t := &sharingCluster{workspace: ws}
	if err := t.startAll(ctx, o); err != nil {
		t.killAll()
		return nil, err
	}
	return t, nil
}

func (t *sharingCluster) startAll(ctx context.Context, o *SharingOptions) error {
	var pullAddrs, replyAddrs []string
	line, err := t.startLogServer(ctx)
	if err != nil {
		return err
	}
	for i := range o.Directories {
		ports, err := t.reservePorts(3)
		if err != nil {
			return err
		}
		d := &directoryNode{}
		t.directories = append(t.directories, d)
		if err := t.startSlot(ctx, &d.slot, program{name: fmt.Sprintf("directory-%d", i), onLine: d.recordLine,
			args: []string{"directory", "--json", "--every", "50ms"}, readyText: `"ports":`}, "directory",
			fmt.Sprintf(directoryText, host, ports[0], ports[1], ports[2], line)); err != nil {
			return err
		}
		pullAddrs, replyAddrs = append(pullAddrs, fmt.Sprintf("%s:%d", host, ports[0])), append(replyAddrs, fmt.Sprintf("%s:%d", host, ports[1]))
	}
	for i := range instances {
		ports, err := t.reservePorts(4)
		if err != nil {
			return err
		}
		name, at, s := fmt.Sprintf("instance-%d", i), new(slot), o.shape
		t.slots, t.admissions = append(t.slots, at), append(t.admissions, newAdmission(o.Pages/2))
		t.peers = append(t.peers, agent.Peer{Host: host, InitPort: ports[0], AllocPort: ports[3]})
		pullAddrs, replyAddrs := pullAddrs, replyAddrs
		if d := i % len(pullAddrs); t.logServer != nil {
			pullAddrs, replyAddrs = pullAddrs[d:d+1], replyAddrs[d:d+1]
		}
		more := sharingLines[o.Mode]
		if o.Mode == P2PDelay {
			more += fmt.Sprintf("p2p_npu_buffer_size: %d\n", stagingPages*s.pageBytes())
		}
		arena := ""
		if o.Mode == P2PArena {
			arena = fmt.Sprintf("  use_host_staging: true\n  os_staging_bytes: %d\n", o.Pages/2*s.pageBytes())
		}
		if o.Ring {
			more += fmt.Sprintf("enable_pd: true\npd_role: both\npd_peer_host: %s\npd_peer_init_port: %d\n"+
				"pd_peer_alloc_port: %d\npd_skip_proxy_notification: true\n", host, ports[0], ports[3])
		}
		if err := t.startSlot(ctx, at, program{name: name, args: []string{"node", "--commands"}}, "both",
			fmt.Sprintf(instanceText, host, ports[0], ports[1], more, o.Plane, s.chunkTokens, o.Pages*s.pageBytes(), name,
				ports[2], strings.Join(pullAddrs, ", "), strings.Join(replyAddrs, ", "), s.layers, s.kvHeads, s.headSize,
				arena, o.leaseLines())); err != nil {
			return err
		}
	}
	return nil
}

// startSlot writes the configuration of a slot and starts the slot's first process. Role is the role of the process in
// the policy.
func (g *workspace) startSlot(ctx context.Context, at *slot, p program, role, text string) error {
	path := filepath.Join(g.dir, p.name+".yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration of %s: %w", p.name, err)
	}
	p.args, p.log = append(p.args, "--config", path), g.log
	variable := nodeVariable
	if role == "directory" {
		variable = directoryVariable
	}
	if err := g.certs.prepare(&p, role, variable); err != nil {
		return err
	}
	at.program, at.release = p, g.release
	return at.startFirst(ctx)
}

// instanceProcesses returns the current processes of the instances.
func (t *sharingCluster) instanceProcesses() []*process {
	var all []*process
	for _, at := range t.slots {
		all = append(all, at.currentProcess())
	}
	return all
}

// allProcesses returns the current processes of the instances, the directories and the log's server, in the order in
// which they are stopped.
func (t *sharingCluster) allProcesses() []*process {
	all := t.instanceProcesses()
	for _, d := range t.directories {
		all = append(all, d.currentProcess())
	}
	if t.logServer != nil {
		all = append(all, t.logServer.currentProcess())
	}
	return all
}

// stopAll ends all processes in order and returns an error text for each process that did not end well.
func (t *sharingCluster) stopAll() (problems []string) {
	for _, p := range t.allProcesses() {
		if err := p.stopAndWait(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// killAll kills all processes and removes their files and ports.
func (t *sharingCluster) killAll() {
	for _, p := range t.allProcesses() {
		if p != nil {
			p.killAndWait()
		}
	}
	t.cleanUp()
}

// A directoryNode is the slot of a directory with the counts that the directory printed last.
type directoryNode struct {
	slot
	countsMu   sync.Mutex
	lastCounts directoryLine
}

// A directoryLine is a line that a directory prints with its counts. The first line has ports instead of counts.
type directoryLine struct {
	Workers int `json:"workers"`
	Chunks  int `json:"chunks"`
}

func (d *directoryNode) recordLine(line []byte) {
	var l directoryLine
	if json.Unmarshal(line, &l) != nil {
		return
	}
	d.countsMu.Lock()
	defer d.countsMu.Unlock()
	d.lastCounts = l
}

// currentCounts returns the counts of the directory's last line.
func (d *directoryNode) currentCounts() directoryLine {
	d.countsMu.Lock()
	defer d.countsMu.Unlock()
	return d.lastCounts
}

// awaitWorkers waits until the directory knows the given number of workers and at least one chunk. It fails after
// directoryMax.
func (d *directoryNode) awaitWorkers(ctx context.Context, workers int) error {
	for deadline := time.Now().Add(directoryMax); ; {
		l := d.currentCounts()
		switch {
		case l.Workers == workers && l.Chunks > 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s knows %d workers and %d chunks %v after its restart; want %d workers and their "+
				"chunks", d.program.name, l.Workers, l.Chunks, directoryMax, workers)
		case !sleepContext(ctx, 5*time.Millisecond):
			return ctx.Err()
		}
	}
}
