package rank

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/end"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/pull"
	"github.com/kvferry/kvferry/fsm/rank/flows/push"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/bundle"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/notice"
	"github.com/kvferry/kvferry/identity"
)

// Role is the set of sides that a rank has: which commands and messages it takes. What it has no side for is refused.
type Role uint8

// The sides, and both at once.
const (
	RoleSender   Role = 1 << iota // puts: a prefill node
	RoleReceiver                  // lets puts in, and gets: a decode node
	RoleBoth     = RoleSender | RoleReceiver
)

// Sends says whether a rank puts.
func (r Role) Sends() bool { return r&RoleSender != 0 }

// Receives says whether a rank lets puts in.
func (r Role) Receives() bool { return r&RoleReceiver != 0 }

func (r Role) String() string {
	switch r {
	case RoleSender:
		return "sender"
	case RoleReceiver:
		return "receiver"
	case RoleBoth:
		return "both"
	}
	return "Role(" + strconv.Itoa(int(r)) + ")"
}

// directions in which it knows peers: those that it calls, those that call it.
func (r Role) directions() uint32 {
	if r == RoleBoth {
		return 2
	}
	return 1
}

// Plane is one data plane of this rank as its driver opened it.
type Plane struct {
	Name string
	Blob []byte // what every peer needs to import us; opaque here. Each is told it with a token of its own behind it
}

// The parts of a configuration, by what they are about. Each is of the room or flow that goes by it, which says what
// may stand there, what zero means and what it needs.
type (
	Common      = flow.Settings
	Memory      = memory.Settings
	Store       = store.Settings
	Peers       = link.Settings
	Engine      = engine.Settings
	Pending     = allocqueue.Settings
	Deferred    = deferred.Settings
	Pipeline    = staging.Settings
	Granting    = push.GrantSettings
	Offering    = pull.OfferSettings
	Reading     = pull.ReadSettings
	Recalling   = recall.Settings
	Sharing     = p2p.Settings
	Finding     = registrar.Settings
	Bundling    = bundle.Settings
	Layerwise   = layerwise.Settings
	Registering = register.Settings
)

// ReserveNone as ReservePPM reserves nothing.
const ReserveNone = pull.ReserveNone

// Config is everything a rank needs to know. Zero durations and counts mean the default named beside them; [New]
// refuses what cannot work.
type Config struct {
	Role Role
	// Key is the secret of this life of the rank: 32 random bytes, which its planes have too, and nobody else. Zero: it
	// follows from the seed, which is for simulators and tests.
	Key identity.Key
	// Planes in order of preference. A peer that shares none is refused.
	Planes []Plane

	Common
	Memory
	Store
	Peers
	Engine
	Pending
	Deferred
	Pipeline
	Granting
	Offering
	Reading
	Recalling
	Sharing
	Finding
	Bundling
	Layerwise
	Registering
	Tuning Tuning
}

// offers says whether this rank leases its pages.
func (c *Config) offers() bool { return c.Pull && c.Role.Sends() }

// asks says whether the rank recalls, answers whether it is recalled from.
func (c *Config) asks() bool    { return c.Recalls && c.Role.Sends() }
func (c *Config) answers() bool { return c.Recalls && c.Role.Receives() }

// asksPeers is the most peers that it recalls from at a time.
func (c *Config) asksPeers() uint32 {
	if !c.asks() {
		return 0
	}
	return c.PeersMax
}

// layers says whether the rank pushes layer by layer.
func (c *Config) layers() bool { return c.Layers > 0 && c.Role.Sends() }

// bundlesMax is how many chunks of which layers are coming it has at the most.
func (c *Config) bundlesMax() uint32 {
	if c.Layers == 0 || !c.Role.Receives() {
		return 0
	}
	return c.BundlesMax
}

// carried is how many puts it gives itself at the most.
func (c *Config) carried() uint32 {
	if !c.layers() {
		return 0
	}
	return c.Carried()
}

// tells says whether the rank tells receivers how requests ended.
func (c *Config) tells() bool { return c.Role.Sends() && !c.registers() }

// endedMax is of how many requests that peers send it remembers how they ended.
func (c *Config) endedMax() int {
	if !c.Role.Receives() || c.registers() {
		return 0
	}
	return int(c.RequestsMax)
}

// connsMax is the most connections of ours that are open: to those that we call, and two or three to each that calls
// us, where ends are told and leases renewed.
func (c *Config) connsMax() int {
	n := link.ConnsMax(c.PeersMax) + int(c.asksPeers())
	if c.Knows() {
		n += c.Conns()
	}
	if c.tells() {
		n += int(c.PeersMax)
	}
	if c.Role.Receives() {
		n += notice.AddressesMax(int(c.PeersMax)) + int(c.PeersMax*c.Role.directions()+1+c.Tuning.PlainsMax)
	}
	return n
}

// highWater is the most pages that are leased at a time.
func (c *Config) highWater() uint32 { return c.HighWater(c.Pages) }

// entriesMax bounds the keys known.
func (c *Config) entriesMax() uint32 {
	return c.Entries(c.chunkPages(), c.BatchMax, c.Delay || c.Keeps)
}

// need is what all parts may have outstanding at a time.
func (c *Config) need() kernel.Need {
	n := c.Engine.Need().And(c.Memory.Need()).And(c.Pipeline.Need())
	if c.Role != RoleBoth { // A sender's pushes, or a receiver's reads: it is given the larger of both, whichever it has.
		n.Transfers = max(c.Engine.Need().Transfers, c.Memory.Need().Transfers+c.Pipeline.Need().Transfers)
	}
	n = n.And(c.Common.Need()).And(c.Peers.Need(c.Tuning.LeftoversMax)).And(c.Pending.Need()).And(c.Deferred.Need()).
		And(kernel.Need{Deadlines: int(c.entriesMax())})
	if c.tells() {
		n = n.And(end.Need(c.RequestsMax, c.PeersMax))
	}
	if c.asks() {
		n = n.And(c.Asking(c.PeersMax))
	}
	if c.answers() {
		n = n.And(c.Answering())
	}
	if c.Shares {
		n = n.And(c.Lending()).And(c.Bringing()).And(c.Engine.Sharing())
	}
	if c.layers() {
		n = n.And(c.Layerwise.Need())
	}
	if c.Layers > 0 && c.Role.Receives() {
		n = n.And(c.Bundling.Need())
	}
	n = n.And(c.Registering.Need(c.PeersMax))
	if c.Knows() {
		n = n.And(c.Finding.Need()).And(c.Seeking())
	}
	return n
}

// tablesMax bounds what needs come to.
const tablesMax = 1<<31 - 1

func (c *Config) fill() error {
	switch c.Role {
	case RoleSender, RoleReceiver, RoleBoth:
	default:
		return fmt.Errorf("rank: Role is %d: use RoleSender, RoleReceiver or RoleBoth", c.Role)
	}
	if err := c.Layout.Validate(); err != nil {
		return fmt.Errorf("rank: Layout: %w", err)
	}
	if len(c.Planes) == 0 {
		return fmt.Errorf("rank: Planes is empty: open at least one data plane")
	}
	c.Offering.Fill()
	c.Common.Fill(c.PullTTL)
	c.Registering.Fill()
	unsaid := c.GrantsMax == 0
	if c.Memory.Fill(); unsaid {
		c.GrantsMax = min(max(c.GrantsMax, c.Grants()), memory.GrantsMax)
	}
	c.Store.Fill(c.chunkPages(), c.BatchMax)
	c.Peers.Fill(c.BackoffMax)
	c.Engine.Fill()
	c.Pending.Fill()
	c.Deferred.Fill()
	if c.stagesApart() {
		kernel.Default(&c.StagingPages, c.DevicePages)
	}
	c.Pipeline.Fill(c.Pages)
	c.Granting.Fill()
	c.Reading.Fill()
	c.Recalling.Fill()
	c.Sharing.Fill()
	c.Finding.Fill()
	c.Bundling.Fill(c.Lease, c.Pages)
	c.Layerwise.Fill()
	if err := c.Tuning.fill(); err != nil {
		return err
	}
	return c.check()
}

// check says what cannot work, in each part and between them.
func (c *Config) check() error {
	if err := cmp.Or(c.Memory.Check(), c.Store.Check(), c.Common.Check(), c.Granting.Check(c.Bearer), c.Peers.Check(),
		c.Engine.Check(), c.Pending.Check(), c.Deferred.Check(), c.Pipeline.Check(c.stagedIn()), c.Recalling.Check(),
		c.Offering.Check(), c.Sharing.Check(), c.Finding.Check(c.Shares),
		c.Bundling.Check(), c.Layerwise.Check(c.Layers, c.BatchMax),
		c.Registering.Check(c.Pages, c.LeaseGuard)); err != nil {
		return err
	}
	if n := c.need(); n.Deadlines > tablesMax || n.Outstanding() > tablesMax || n.Commands > tablesMax {
		return fmt.Errorf("rank: the bounds of this configuration come to %d deadlines, %d outstanding effects and %d "+
			"commands: give smaller ones, so that none is more than %d", n.Deadlines, n.Outstanding(), n.Commands, tablesMax)
	}
	switch {
	case c.ArenaPages > tablesMax-c.Pages:
		return fmt.Errorf("rank: ArenaPages is %d beside %d Pages: give fewer, so that both are no more than %d",
			c.ArenaPages, c.Pages, tablesMax)
	case c.DevicePages > tablesMax-c.Pages-c.ArenaPages:
		return fmt.Errorf("rank: DevicePages is %d beside %d Pages and %d ArenaPages: give fewer, so that all are no more "+
			"than %d", c.DevicePages, c.Pages, c.ArenaPages, tablesMax)
	case c.ArenaPages > 0 && c.landsApart():
		return fmt.Errorf("rank: ArenaPages is %d with DevicePages of %d, into which what is brought lands: the arena's copies "+
			"are made of Pages alone; set Keeps, or give 0 for one of them", c.ArenaPages, c.DevicePages)
	case c.Layers > 0 && (c.offers() || c.Delay || c.Recalls || c.Shares):
		return fmt.Errorf("rank: Layers is %d: a chunk has as many pages, which are pushed, and neither offered, recalled "+
			"nor shared; leave out Pull, Delay, Recalls and Shares, or give 0", c.Layers)
	case c.registers() && (c.Role != RoleBoth || c.offers() || c.Delay || c.Recalls || c.Shares || c.Layers > 0 ||
		c.Bearer):
		return fmt.Errorf("rank: Geometry is set: the pool is the engine's, and the rank only registers blocks or writes " +
			"into registered ones; use RoleBoth, and leave out Pull, Delay, Recalls, Shares, Layers and Bearer")
	case c.Shares && c.Role != RoleBoth:
		return fmt.Errorf("rank: Shares with the role of a %v: who shares calls peers and is called; use RoleBoth", c.Role)
	case c.offers():
		return c.CheckOffers(c.Pages, c.LeaseGuard)
	}
	return nil
}

// Default returns the defaults of a configuration, but for those that depend on other fields: these are zero, and are put
// in by [New]. It is what a file of a node that says nothing stands for.
func Default() (c Config) {
	c.Offering.Fill()
	c.Common.Fill(0)
	c.Memory.Fill()
	c.GrantsMax = 0 // Ranks that register blocks have another one.
	c.Store.Fill(0, 0)
	c.Peers.Fill(0)
	c.Engine.Fill()
	c.Pending.Fill()
	c.Deferred.Fill()
	c.Pipeline.Fill(0)
	c.Granting.Fill()
	c.Reading.Fill()
	c.Recalling.Fill()
	c.Sharing.Fill()
	c.Finding = registrar.DefaultSettings()
	c.Layerwise.Fill()
	c.Registering = register.Default()
	if err := c.Tuning.fill(); err != nil {
		panic(fmt.Sprintf("BUG: the defaults of Tuning: %v", err))
	}
	return c
}

// registers says whether the rank registers blocks of its engine's, or writes into registered ones.
func (c *Config) registers() bool { return c.Geometry != nil }

// numbers is what a hello says of it.
func (c *Config) numbers() []uint64 {
	if !c.registers() {
		return nil
	}
	return register.Numbers(c.Geometry)
}

// consumersPeers is the most peers that blocks are registered with at a time.
func (c *Config) consumersPeers() uint32 {
	if !c.registers() {
		return 0
	}
	return c.PeersMax
}

// first is the engine's pool. One whose blocks are registered is all the engine's.
func (c *Config) first() memory.PoolConfig {
	p := memory.PoolConfig{Pages: c.Pages, Share: c.Share(c.PeerSharePct), Own: c.Share(c.EngineSharePct), Key: c.PoolKey}
	if c.registers() {
		p.Own, p.Claimed = c.Pages, true
	}
	return p
}

// second is the arena. It lies behind the engine's pool in one stretch of memory: peers know one buffer.
func (c *Config) second() memory.PoolConfig {
	if c.ArenaPages == 0 {
		return memory.PoolConfig{}
	}
	return memory.PoolConfig{Pages: c.ArenaPages, Behind: c.Pages, Key: "os_staging_bytes"}
}

// device is the second pool of who shares. Its pages are numbered behind all others.
func (c *Config) device() memory.PoolConfig {
	return memory.PoolConfig{Pages: c.DevicePages, Share: c.DevicePages, Own: c.DevicePages, Behind: c.deviceFrom(),
		Key: "p2p_npu_buffer_size"}
}

// deviceFrom is the number of the device pool's first page.
func (c *Config) deviceFrom() uint32 { return c.Pages + c.ArenaPages }

// landsApart says whether what is brought lands in the device pool, stagesApart whether fetches read into it.
func (c *Config) landsApart() bool  { return c.DevicePages > 0 && !c.Keeps }
func (c *Config) stagesApart() bool { return c.DevicePages > 0 && c.Keeps }

// chunkPages is how many pages the store's chunks can lie in.
func (c *Config) chunkPages() uint32 {
	if c.landsApart() {
		return c.Pages + c.DevicePages
	}
	return c.Pages
}

// stagedIn is how many pages there are of which StagingPages are a part.
func (c *Config) stagedIn() uint32 {
	if c.stagesApart() {
		return c.DevicePages
	}
	return c.Pages
}

// sharedMax is how many pages of our engine's peers may read at a time.
func (c *Config) sharedMax() uint32 {
	if !c.Shares {
		return 0
	}
	return c.Pages
}
