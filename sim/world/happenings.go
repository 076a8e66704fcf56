package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/oracle"
)

// The happenings that a world reports to the oracles of a run ([World.Panel]), each at its instant, in addition to what
// every driver reports: events, effects, and the happenings of package oracle. An oracle subscribes to a type with
// [oracle.On]. A report is made before the described action is carried out, unless the comment says otherwise. Oracles
// change nothing in a world, except that the first oracle that finds a broken promise ends the run.
type (
	// NodeStarted: a rank begins an incarnation. Buffer is the id of the rank's memory.
	Started struct {
		Node   *Node
		Buffer effects.BufferID
	}
	// Stepping: Node's machine is about to receive an event.
	Stepping struct {
		Node  *Node
		Kind  Kind
		Event effects.Event
	}
	// Wanted: Node's machine has emitted an effect, which is not carried out yet.
	Wanted struct {
		Node   *Node
		Effect effects.Effect
	}
	// Restarted: Node has begun another incarnation.
	Restarted struct {
		Node *Node
	}
	// Rested: nothing is in flight in Node any more. When states since when, for a sentence.
	Rested struct {
		Node *Node
		When string
	}
	// Received: Node's machine is about to receive a message.
	Received struct {
		Node     *Node
		Delivery Delivery
	}
	// Replied: Node's machine is about to receive a reply to a request on Conn.
	Replied struct {
		Node *Node
		Conn *Conn
		Corr effects.Corr
		Body []byte
	}
	// AnsweredClosed: a reply is in the mailbox of a node that has closed its connection.
	AnsweredClosed struct{}
	// Unreachable: Node's machine is about to be notified that no server listens at the address to which it connects.
	Unreachable struct {
		Node *Node
		Conn *Conn
	}
	// FoundUnreachable: the machine was notified of that and has completed its step.
	FoundUnreachable struct {
		Node *Node
		Conn *Conn
	}
	// ConnLost: Node's machine is about to be notified that a connection is lost.
	ConnLost struct {
		Node *Node
		Conn uint64
	}
	// Imported: Node's machine is about to be notified how an import ended.
	Imported struct {
		Node *Node
		Corr effects.Corr
		Code effects.Code
	}
	// LinkLost: Node's machine is about to be notified that the link from Node to Peer is lost or, if OfPeer is set, that
	// the link from Peer to Node is lost.
	LinkLost struct {
		Node   *Node
		Peer   effects.Incarnation
		Theirs bool
	}
	// TransferDone: Node's machine is about to be notified that a transfer is done.
	TransferDone struct {
		Node     *Node
		Transfer *Transfer
		Code     effects.Code
		Settled  bool
	}
	// TransferSettled: a transfer touches no page any more, and its machine is about to be notified, possibly
	// together with TransferDone.
	TransferSettled struct {
		Transfer *Transfer
	}
	// CopySettled: a copy touches no page any more, and its machine is about to be notified of that.
	CopySettled struct {
		Copy *Copy
	}
	// Revoked: Node's machine is about to be notified that a grant is revoked.
	Revoked struct {
		Node  *Node
		Grant effects.GrantID
	}
	// Scattered: Node's machine is about to be notified how a scatter of the engine's device code ended.
	Scattered struct {
		Node   *Node
		Ticket effects.Ticket
		Code   effects.Code
	}
	// LandedTold: Node's machine is about to be notified which pages a peer has written.
	LandedTold struct {
		Node     *Node
		Transfer *Transfer
		Complete bool
	}
	// Opening: Node opens a connection.
	Opening struct {
		Node *Node
		Conn *Conn
	}
	// Sending: Node sends a request.
	Sending struct {
		Node *Node
		Conn *Conn
		Corr effects.Corr
		Body []byte
	}
	// Replying: Node replies to the request with that number.
	Replying struct {
		Node    *Node
		Request uint64
		Body    []byte
	}
	// Importing: Node imports a peer's memory.
	Importing struct {
		Node   *Node
		Effect *effects.Import
	}
	// Publishing: the pages of a grant of Node become readable, or writable, for a peer.
	Publishing struct {
		Node  *Node
		Pages []effects.Page
	}
	// Granting: Node grants a peer the right to write pages.
	Granting struct {
		Node   *Node
		Effect *effects.Grant
	}
	// Lending: Node grants a peer the right to read pages.
	Lending struct {
		Node  *Node
		Grant *Grant
	}
	// Transferring: Node begins a transfer.
	Transferring struct {
		Node     *Node
		Transfer *Transfer
		Effect   *effects.Transfer
	}
	// Cancelling: Node requests that a transfer be cancelled.
	Cancelling struct {
		Node     *Node
		Transfer *Transfer
	}
	// Copying: Node begins a copy between pages of its own.
	Copying struct {
		Node *Node
		Copy *Copy
	}
	// Carrying: Node sends the content of pages, which are not read yet.
	Carrying struct {
		Node   *Node
		Effect *effects.Send
	}
	// StoringCarried: Node is about to store received bytes into a page.
	Storing struct {
		Node   *Node
		Effect *effects.Store
	}
	// Scattering: Node passes chunks to the engine's device code.
	Scattering struct {
		Node   *Node
		Effect *effects.Scatter
	}
	// Observed: Node's machine states a fact.
	Observed struct {
		Node   *Node
		Effect *effects.Observe
	}
	// Submitted: the plane submits a transfer to the device.
	Submitted struct {
		Node     *Node
		Transfer *Transfer
	}
	// Flying: a store to a pair's page is in flight and may land at any time.
	Flying struct {
		Transfer *Transfer
		Pair     int
	}
	// Flown: a store that was in flight cannot land any more.
	Flown struct {
		Transfer *Transfer
		Pair     int
	}
	// Stored: half of a pair's page is written.
	Stored struct {
		Transfer   *Transfer
		Pair, Half int
	}
	// Passed: all of a pair's page was copied, and the source was unchanged afterwards.
	Passed struct {
		Transfer *Transfer
		Pair     int
	}
	// Landed: all of a transfer that will land has landed.
	Landed struct {
		Transfer *Transfer
	}
	// Loaded: a pair's page is read.
	Loaded struct {
		Transfer *Transfer
		Pair     int
	}
	// ReadPassed: a pair's page was read as a whole and may be delivered.
	ReadPassed struct {
		Transfer *Transfer
		Pair     int
	}
	// Unmapped: the pages of a grant cannot be reached by its peer any more.
	Unmapped struct {
		Node  *Node
		Grant effects.GrantID
	}
	// Moving: a copy moves bytes.
	Moving struct {
		Copy *Copy
		Pair effects.CopyPair
	}
	// EpochSubmitted: a batch of a transfer is submitted on a communicator.
	EpochSubmitted struct {
		Node     *Node
		Link     *Link
		Transfer *Transfer
		Batch    CommBatch
	}
	// EpochSaid: a communicator's machine sends a message to its peer.
	EpochSaid struct {
		Link *Link
		Say  communicator.Message
	}
	// EpochTold: a communicator's machine is about to receive an event.
	EpochTold struct {
		Node  *Node
		Link  *Link
		Event *communicator.Event
	}
	// EpochPumped: a communicator's machine has no more work now.
	EpochPumped struct {
		Link *Link
	}
	// EpochEnded: a communicator reports how a transfer ended.
	EpochEnded struct {
		Link     *Link
		Transfer *Transfer
		Post     communicator.Post
	}
	// EpochSettled: a communicator reports that a transfer touches no page any more.
	EpochSettled struct {
		Link     *Link
		Transfer *Transfer
	}
	// EpochsRevoked: a grant is revoked for every communicator.
	EpochsRevoked struct {
		Node   *Node
		Revoke *CommRevoke
	}
	// ChannelClosed: the channel of a communicator is closed.
	ChannelClosed struct {
		Link *Link
	}
)

// The declarations of the happenings that a world reports.
var (
	OnStarted          = oracle.NewHappening[Started]()
	OnStepping         = oracle.NewHappening[Stepping]()
	OnWanted           = oracle.NewHappening[Wanted]()
	OnRestarted        = oracle.NewHappening[Restarted]()
	OnRested           = oracle.NewHappening[Rested]()
	OnReceived         = oracle.NewHappening[Received]()
	OnReplied          = oracle.NewHappening[Replied]()
	OnAnsweredClosed   = oracle.NewHappening[AnsweredClosed]()
	OnUnreachable      = oracle.NewHappening[Unreachable]()
	OnFoundUnreachable = oracle.NewHappening[FoundUnreachable]()
	OnConnLost         = oracle.NewHappening[ConnLost]()
	OnImported         = oracle.NewHappening[Imported]()
	OnLinkLost         = oracle.NewHappening[LinkLost]()
	OnTransferDone     = oracle.NewHappening[TransferDone]()
	OnTransferSettled  = oracle.NewHappening[TransferSettled]()
	OnCopySettled      = oracle.NewHappening[CopySettled]()
	OnRevoked          = oracle.NewHappening[Revoked]()
	OnScattered        = oracle.NewHappening[Scattered]()
	OnLandedTold       = oracle.NewHappening[LandedTold]()
	OnOpening          = oracle.NewHappening[Opening]()
	OnSending          = oracle.NewHappening[Sending]()
	OnReplying         = oracle.NewHappening[Replying]()
	OnImporting        = oracle.NewHappening[Importing]()
	OnPublishing       = oracle.NewHappening[Publishing]()
	OnGranting         = oracle.NewHappening[Granting]()
	OnLending          = oracle.NewHappening[Lending]()
	OnTransferring     = oracle.NewHappening[Transferring]()
	OnCancelling       = oracle.NewHappening[Cancelling]()
	OnCopying          = oracle.NewHappening[Copying]()
	OnCarrying         = oracle.NewHappening[Carrying]()
	OnStoring          = oracle.NewHappening[Storing]()
	OnScattering       = oracle.NewHappening[Scattering]()
	OnObserved         = oracle.NewHappening[Observed]()
	OnSubmitted        = oracle.NewHappening[Submitted]()
	OnFlying           = oracle.NewHappening[Flying]()
	OnFlown            = oracle.NewHappening[Flown]()
	OnStored           = oracle.NewHappening[Stored]()
	OnPassed           = oracle.NewHappening[Passed]()
	OnLanded           = oracle.NewHappening[Landed]()
	OnLoaded           = oracle.NewHappening[Loaded]()
	OnReadPassed       = oracle.NewHappening[ReadPassed]()
	OnUnmapped         = oracle.NewHappening[Unmapped]()
	OnMoving           = oracle.NewHappening[Moving]()
	OnEpochSubmitted   = oracle.NewHappening[EpochSubmitted]()
	OnEpochSaid        = oracle.NewHappening[EpochSaid]()
	OnEpochTold        = oracle.NewHappening[EpochTold]()
	OnEpochPumped      = oracle.NewHappening[EpochPumped]()
	OnEpochEnded       = oracle.NewHappening[EpochEnded]()
	OnEpochSettled     = oracle.NewHappening[EpochSettled]()
	OnEpochsRevoked    = oracle.NewHappening[EpochsRevoked]()
	OnChannelClosed    = oracle.NewHappening[ChannelClosed]()
)
