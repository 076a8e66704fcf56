package sim

import (
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// What decides a run is package plan's. Whoever uses the simulator finds it here, too.
type (
	Plan      = plan.Plan
	Topology  = plan.Topology
	Timeouts  = plan.Timeouts
	Bounds    = plan.Bounds
	Tuning    = plan.Tuning
	Delays    = plan.Delays
	Job       = plan.Job
	Scheduled = plan.Scheduled
	Node      = plan.Node
	Strike    = plan.Strike
	Subject   = plan.Subject
	Fault     = plan.Fault
	Item      = plan.Item
)

// What a run comes to is package world's.
type (
	Result  = world.Result
	Failure = world.Failure
)

// What the explorer takes and gives is package explore's.
type (
	ExploreOptions = explore.Options
	Exploration    = explore.Exploration
	Scope          = explore.Scope
	ScopeJob       = explore.Job
	Timers         = explore.Timers
	Path           = explore.Path
	Violation      = explore.Violation
)

// When deadlines may pass in a scope: see [explore.Timers].
const (
	TimersIdle  = explore.TimersIdle
	TimersAny   = explore.TimersAny
	TimersUnits = explore.TimersUnits
)

// StatesMax bounds an exploration that names no bound.
const StatesMax = explore.StatesMax

// ParsePath reads what [Path.String] wrote.
func ParsePath(text string) (Path, error) { return explore.ParsePath(text) }

// PlanVersion is the version of the format; KeysOwn the first number of chunks that [Expand] gives to one job alone.
const (
	PlanVersion = plan.Version
	KeysOwn     = plan.KeysOwn
)

// Faults; see [plan.Fault].
const (
	FaultCrash          = plan.FaultCrash
	FaultPause          = plan.FaultPause
	FaultCutConn        = plan.FaultCutConn
	FaultCutLink        = plan.FaultCutLink
	FaultNoise          = plan.FaultNoise
	FaultRequestLost    = plan.FaultRequestLost
	FaultReplyLost      = plan.FaultReplyLost
	FaultUnnoticed      = plan.FaultUnnoticed
	FaultImport         = plan.FaultImport
	FaultPushRefused    = plan.FaultPushRefused
	FaultDMA            = plan.FaultDMA
	FaultLateStore      = plan.FaultLateStore
	FaultRevokeHeldUp   = plan.FaultRevokeHeldUp
	FaultAbort          = plan.FaultAbort
	FaultAgain          = plan.FaultAgain
	FaultAbandon        = plan.FaultAbandon
	FaultRefused        = plan.FaultRefused
	FaultTwice          = plan.FaultTwice
	FaultFreeze         = plan.FaultFreeze
	FaultSlow           = plan.FaultSlow
	FaultDrain          = plan.FaultDrain
	FaultPartition      = plan.FaultPartition
	FaultDeafPartition  = plan.FaultDeafPartition
	FaultFlapping       = plan.FaultFlapping
	FaultReset          = plan.FaultReset
	FaultHostile        = plan.FaultHostile
	FaultHandshake      = plan.FaultHandshake
	FaultDelay          = plan.FaultDelay
	FaultDoubled        = plan.FaultDoubled
	FaultCorruptRequest = plan.FaultCorruptRequest
	FaultCorruptReply   = plan.FaultCorruptReply
	FaultHalfPage       = plan.FaultHalfPage
	FaultStall          = plan.FaultStall
	FaultEarly          = plan.FaultEarly
	FaultConflict       = plan.FaultConflict
	FaultRefill         = plan.FaultRefill
	FaultHoard          = plan.FaultHoard
	FaultDoneLost       = plan.FaultDoneLost
	FaultForged         = plan.FaultForged
	FaultPutOff         = plan.FaultPutOff
	FaultGreedy         = plan.FaultGreedy
	FaultAlone          = plan.FaultAlone
	FaultUnproven       = plan.FaultUnproven
	FaultEndStays       = plan.FaultEndStays
	FaultGoneEarly      = plan.FaultGoneEarly
	FaultForeign        = plan.FaultForeign
	FaultRepeated       = plan.FaultRepeated
	FaultCrowd          = plan.FaultCrowd
	FaultKinds          = plan.FaultKinds
)

// NewPlan is what a plan by hand starts from: see [plan.New].
func NewPlan() Plan { return plan.New() }

// ParsePlan reads a plan from YAML: see [plan.Parse].
func ParsePlan(text []byte) (Plan, error) { return plan.Parse(text) }

// ReadPlan reads the plan of a file: see [plan.Read].
func ReadPlan(path string) (Plan, error) { return plan.Read(path) }

// Faults are all kinds, in the order of their numbers.
func Faults() []Fault { return plan.Faults() }

// ChannelDispatch is where PD's decode engines are told, by a proxy of somebody's own, that a request of prefill is
// there: see [world.ChannelDispatch]. Engines is the node that [Boot.Addr] takes for them.
const (
	ChannelDispatch = world.ChannelDispatch
	Engines         = world.Engines
)

// DefaultProfile draws everything.
const DefaultProfile = expand.DefaultProfile

// Coverage counts which odd paths a run took, or a campaign: see [coverage.Coverage].
type Coverage = coverage.Coverage

// Points are the names of everything that is counted, whether it can happen or not.
func Points() []string { return coverage.Points() }

// Conjunction is several rare things at once: see [pd.Conjunction], which has their names.
type Conjunction = pd.Conjunction

// Conjunctions are all of them, in the order of their numbers.
func Conjunctions() []Conjunction { return pd.Conjunctions() }

// Meetable are the conjunctions that some ten thousand seeds of a profile must meet.
func Meetable(profile string) []Conjunction { return pd.Meetable(profile) }
