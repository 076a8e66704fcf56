//go:build cgo && linux

package gateway

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
)

// Name is the name of the data plane.
const Name = "vllm"

// Config configures a Gateway. A field without a default in the comment must be set.
type Config struct {
	// Agents says in which process the agents of libnixl run: nixlproc.Options.Open in one of their own, which needs
	// a pool with a file; nixlproc.InProcess in this one, where engines can then reach all memory and end the process.
	Agents nixlproc.Opener
	// SideChannels opens side channels, for example zmq.Config's Opener.
	SideChannels control.Opener
	// EngineID is the name by which engines know this node's engine. No two engines may have the same name.
	EngineID string
	// Host is the address at which engines reach the side channels. Port is the port of the front's side channel, which
	// engines configure as remote_port; the system chooses the ports of all further side channels.
	Host string
	Port uint16
	// TrustedNetwork says that all hosts and users that reach this host may read and write the memory of the
	// agents' process, because UCX's tcp permits that: the key nixl.trusted_network. Without it Host and the engines must
	// have loopback addresses.
	TrustedNetwork bool
	// CompatibilityHash is compatibility_hash of the engines that run the same model: 64 hexadecimal digits.
	CompatibilityHash string
	// Geometry describes the blocks of the rank, which must be the engine's only rank. Layout is the layout of the
	// rank's pages.
	Geometry *geometry.Geometry
	Layout   protocol.Layout
	// RegionNames are region_names, a name for each layer. CacheLayout is kv_cache_layout, LBHNC if empty.
	// AttentionBackend is attn_backend_name.
	RegionNames      []string
	CacheLayout      string
	AttentionBackend string
	// Limits are the keys gateway.* of the node's configuration; zero fields have their defaults.
	Limits        config.Gateway
	MessageLimits protocol.Limits // bounds of messages; zero: the defaults
}

// ranksMax bounds the ranks of a plain engine with which this rank exchanges chunks.
const ranksMax = 64

// withDefaults checks the configuration and fills in the defaults.
func (c Config) withDefaults() (Config, error) {
	bad := func(field, value, remedy string) (Config, error) {
		return c, fmt.Errorf("%w: %s of the gateway is %q; %s", plane.ErrInvalid, field, value, remedy)
	}
	limits := &c.Limits
	limits.Transports = cmp.Or(limits.Transports, "^cma")
	c.CacheLayout = cmp.Or(c.CacheLayout, "LBHNC")
	g := c.Geometry
	switch envTransports := os.Getenv("UCX_TLS"); {
	case envTransports != "":
		return bad("gateway.transports", limits.Transports,
			fmt.Sprintf("the variable UCX_TLS is %q and overrides this key: unset the variable", envTransports))
	case c.Agents == nil:
		return bad("agents", "", "pass nixlproc.Options{}.Open, or nixlproc.InProcess with a library")
	case c.SideChannels == nil:
		return bad("sides", "", "pass an opener of control transports for the side channels")
	case c.EngineID == "":
		return bad("engine id", "", "give the engine a name that no other engine has")
	case c.Host == "" || c.Port == 0:
		return bad("host and port", fmt.Sprintf("%s:%d", c.Host, c.Port), "give the address and port at which engines reach the side channel")
	case len(c.CompatibilityHash) != 64 || strings.Trim(c.CompatibilityHash, "0123456789abcdef") != "":
		return bad("hash", c.CompatibilityHash, "give compatibility_hash of the engines, 64 hexadecimal digits")
	case g == nil:
		return bad("geometry", "", "pass the geometry of the rank")
	case g.Ranks != 1 || g.Stages != 1:
		return bad("tp_size, pp_size", fmt.Sprintf("%d, %d", g.Ranks, g.Stages),
			"engines of vLLM ask one side channel for all ranks of an engine: configure this engine with one rank")
	case len(c.RegionNames) != len(g.Layers):
		return bad("names", fmt.Sprint(len(c.RegionNames)), fmt.Sprintf("give region_names of all %d layers", len(g.Layers)))
	case limits.Transports != "tcp" && limits.Transports != "^cma":
		return bad("gateway.transports", limits.Transports,
			"give tcp or ^cma: with other transports an engine of this host might store into the pool by itself, and could not be stopped")
	}
	for _, f := range []struct {
		name          string
		value         *time.Duration
		def, min, max time.Duration
	}{
		{"registration_timeout", &limits.RegistrationTimeout, 480 * time.Second, time.Second, 24 * time.Hour},
		{"side_timeout", &limits.SideTimeout, 5 * time.Second, time.Millisecond, time.Hour},
		{"stall_timeout", &limits.StallTimeout, 10 * time.Second, time.Millisecond, time.Hour},
	} {
		if *f.value = cmp.Or(*f.value, f.def); *f.value < f.min || *f.value > f.max {
			return bad("gateway."+f.name, f.value.String(), fmt.Sprintf("give %v to %v", f.min, f.max))
		}
	}
	for _, f := range []struct {
		name     string
		value    *uint32
		def, max uint32
	}{
		{"engines", &limits.EnginesMax, 16, 1024}, {"asks", &limits.RegistrationsMax, 1024, 1 << 16},
		{"waiting", &limits.PendingMax, 1024, 1 << 16}, {"agents", &limits.AgentsMax, 4, 1024}, {"tries", &limits.Attempts, 3, 100},
		{"window", &limits.Window, 256, 1 << 15},
	} {
		if *f.value = cmp.Or(*f.value, f.def); *f.value > f.max {
			return bad("gateway."+f.name, fmt.Sprint(*f.value), fmt.Sprintf("give 1 to %d", f.max))
		}
	}
	if err := libnixl.CheckTrusted(c.Host, c.TrustedNetwork); err != nil {
		return c, fmt.Errorf("%w: host of the gateway: %w", plane.ErrInvalid, err)
	}
	if c.MessageLimits == (protocol.Limits{}) {
		c.MessageLimits = protocol.DefaultLimits()
	}
	return c, nil
}

// buildMetadata returns the description of our memory that engines get, with the blocks beginning at base.
func (c *Config) buildMetadata(base uint64, pageBytes uint64) protocol.NixlMetadata {
	g := c.Geometry
	stride := uint64(g.SharesPerBlock()) * pageBytes
	m := protocol.NixlMetadata{
		NumBlocks: uint64(g.Blocks), Layout: []byte(c.CacheLayout), BlockSize: uint64(g.BlockTokens),
		Backend: []byte(c.AttentionBackend), PerLogical: uint64(g.PerLogical), DCPSize: 1, PCPSize: 1,
		Regions: protocol.NixlRegions{HasNumBlocks: true, HasGroupIDs: true, HasNames: true, HasMemTypes: true},
	}
	for i, layer := range g.Layers {
		m.BaseAddrs = append(m.BaseAddrs, base+uint64(g.PageNumber(uint32(i), 0, 0))*pageBytes)
		m.BlockLens, m.BlockStrides = append(m.BlockLens, stride), append(m.BlockStrides, stride)
		r := &m.Regions
		group := int64(layer.Group)
		if layer.Group == geometry.Shared {
			group = -1
		}
		r.NumBlocks, r.GroupIDs = append(r.NumBlocks, uint64(g.Blocks)), append(r.GroupIDs, group)
		r.Names, r.MemTypes = append(r.Names, []byte(c.RegionNames[i])), append(r.MemTypes, []byte(geometry.MemDRAM.String()))
	}
	return m
}

// machineConfig returns the configuration of the machine. frontBase is the base of the decoy.
func (c *Config) machineConfig(env *plane.Env, host nixlproc.Host, frontBase uint64) (machine.Config, error) {
	m := c.buildMetadata(host.PeerAddress(uint64(env.Leased.FirstRegion().Base)), env.Leased.Buffer().PageBytes)
	m.EngineID = []byte(c.EngineID)
	g := c.Geometry
	own, err := geometry.ParseRegions(&m, &geometry.Worker{Ranks: 1, Stages: 1, Heads: g.Heads, CellHeads: g.CellHeads})
	if err != nil {
		return machine.Config{}, fmt.Errorf("%w: %w", plane.ErrInvalid, err)
	}
	for i, layer := range g.Layers {
		if own.Layers[i].Number != layer.Number {
			return machine.Config{}, fmt.Errorf("%w: layer %d is region %d; engines of vLLM count regions from 0: give "+
				"layers in order, from 0 on", plane.ErrInvalid, layer.Number, i)
		}
	}
	l := &c.Limits
	return machine.Config{
		Own: own, Metadata: m, FrontMetadata: c.buildMetadata(host.PeerAddress(frontBase), env.Leased.Buffer().PageBytes),
		Hash: c.CompatibilityHash, Host: c.Host,
		Incarnation: env.Incarnation, Plane: Name, Layout: c.Layout,
		Window: uint16(l.Window), RegistrationTimeout: effects.Duration(l.RegistrationTimeout), EnginesMax: int(l.EnginesMax),
		RegistrationsMax: int(l.RegistrationsMax), PendingMax: int(l.PendingMax), RanksMax: ranksMax, AgentsMax: int(l.AgentsMax),
		TriesMax: int(l.Attempts),
		Wire:     c.MessageLimits,
	}, nil
}

// backendParams returns the parameters of the UCX backend of our agents.
func (c *Config) backendParams() map[string]string {
	return libnixl.UCXParams(c.Limits.Transports, c.TrustedNetwork)
}
