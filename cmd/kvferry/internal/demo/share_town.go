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
type town struct {
	ground
	seats       []*seat
	peers       []agent.Peer // address of each instance
	rooms       []*admission // for each instance, the limit on chunks of requests in progress
	directories []*office
	shared      *seat  // the server of the directories' log; nil if no server is installed
	logBy       string // name of the log's server, or the reason that there is no server
}

// instanceText is the format of an instance's configuration, in LMCache's keys.
const shareText = `enable_p2p: true
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

func startTown(ctx context.Context, o *SharedOptions) (*town, error) {
	on, err := newGround(o.Log)
	if err != nil {
		return nil, err
	}
	t := &town{ground: on}
	if err := t.startAll(ctx, o); err != nil {
		t.abort()
		return nil, err
	}
	return t, nil
}

func (t *town) startAll(ctx context.Context, o *SharedOptions) error {
	var told, asked []string
	line, err := t.startLog(ctx)
	if err != nil {
		return err
	}
	for i := range o.Directories {
		ports, err := t.reserve(3)
		if err != nil {
			return err
		}
		d := &office{}
		t.directories = append(t.directories, d)
		if err := t.settleIn(ctx, &d.seat, program{name: fmt.Sprintf("directory-%d", i), notes: d.note,
			args: []string{"directory", "--json", "--every", "50ms"}, says: `"ports":`},
			fmt.Sprintf(directoryText, host, ports[0], ports[1], ports[2], line)); err != nil {
			return err
		}
		told, asked = append(told, fmt.Sprintf("%s:%d", host, ports[0])), append(asked, fmt.Sprintf("%s:%d", host, ports[1]))
	}
	for i := range instances {
		ports, err := t.reserve(4)
		if err != nil {
			return err
		}
		name, at, s := fmt.Sprintf("instance-%d", i), new(seat), o.shape
		t.seats, t.rooms = append(t.seats, at), append(t.rooms, newAdmission(o.Pages/2))
		t.peers = append(t.peers, agent.Peer{Host: host, InitPort: ports[0], AllocPort: ports[3]})
		told, asked := told, asked
		if d := i % len(told); t.shared != nil {
			told, asked = told[d:d+1], asked[d:d+1]
		}
		more := shareLines[o.Mode]
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
		if err := t.settleIn(ctx, at, program{name: name, args: []string{"node", "--commands"}},
			fmt.Sprintf(shareText, host, ports[0], ports[1], more, o.Plane, s.chunkTokens, o.Pages*s.pageBytes(), name,
				ports[2], strings.Join(told, ", "), strings.Join(asked, ", "), s.layers, s.kvHeads, s.headSize,
				arena, o.leases())); err != nil {
			return err
		}
	}
	return nil
}

// startSlot writes the configuration of a slot and starts the slot's first process.
func (g *ground) settleIn(ctx context.Context, at *seat, p program, text string) error {
	path := filepath.Join(g.dir, p.name+".yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration of %s: %w", p.name, err)
	}
	p.args, p.log = append(p.args, "--config", path), g.log
	at.program = p
	return at.take(ctx)
}

// instanceProcesses returns the current processes of the instances.
func (t *town) nodes() []*process {
	var all []*process
	for _, at := range t.seats {
		all = append(all, at.now())
	}
	return all
}

// allProcesses returns the current processes of the instances, the directories and the log's server, in the order in
// which they are stopped.
func (t *town) all() []*process {
	all := t.nodes()
	for _, d := range t.directories {
		all = append(all, d.now())
	}
	if t.shared != nil {
		all = append(all, t.shared.now())
	}
	return all
}

// stopAll ends all processes in order and returns an error text for each process that did not end well.
func (t *town) stop() (problems []string) {
	for _, p := range t.all() {
		if err := p.stop(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// killAll kills all processes and removes their files and ports.
func (t *town) abort() {
	for _, p := range t.all() {
		if p != nil {
			p.kill()
		}
	}
	t.leaveNothing()
}

// A directoryNode is the slot of a directory with the counts that the directory printed last.
type office struct {
	seat
	telling sync.Mutex
	last    directoryLine
}

// A directoryLine is a line that a directory prints with its counts. The first line has ports instead of counts.
type directoryLine struct {
	Workers int `json:"workers"`
	Chunks  int `json:"chunks"`
}

func (d *office) note(line []byte) {
	var l directoryLine
	if json.Unmarshal(line, &l) != nil {
		return
	}
	d.telling.Lock()
	defer d.telling.Unlock()
	d.last = l
}

// currentCounts returns the counts of the directory's last line.
func (d *office) knowing() directoryLine {
	d.telling.Lock()
	defer d.telling.Unlock()
	return d.last
}

// awaitWorkers waits until the directory knows the given number of workers and at least one chunk. It fails after
// directoryMax.
func (d *office) knows(ctx context.Context, workers int) error {
	for until := time.Now().Add(knownMax); ; {
		l := d.knowing()
		switch {
		case l.Workers == workers && l.Chunks > 0:
			return nil
		case time.Now().After(until):
			return fmt.Errorf("%s knows %d workers and %d chunks %v after it was started again, want %d workers and their "+
				"chunks", d.program.name, l.Workers, l.Chunks, knownMax, workers)
		case !pause(ctx, 5*time.Millisecond):
			return ctx.Err()
		}
	}
}
