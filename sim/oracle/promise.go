package oracle

// promises holds the sentences of docs/safety.md by property; TestPromisesAreThoseOfTheDocs compares them.
var promises = map[string]string{
	"S1": "a chunk delivered for a key holds exactly the bytes its producer stored, whole",
	"S2": "no stale delivery: each page is in the generation it was delivered as",
	"S3": "no write lands on a page that is not granted to that very transfer",
	"S4": "no page that a transfer may still touch is given to another user",
	"S5": "free + in use = total after each step; no double free",
	"S6": "pages leased, counted from the offer and with those being revoked, never exceed " +
		"floor(pages × (1 − reserve)); a batch that can never fit is refused at once",
	"S7": "while the circuit breaker of a full receiver is open, no request for as many pages is sent to that receiver",
	"S8": "pinned pages are released once, however often the release is requested",
	"S9": "the proxy is notified of a request at most once, and only after every chunk is ready, is kept to be read " +
		"for a stated time, or is counted as missing",
	"S10": "at most one reply to a request; malformed requests are answered too",
	"S11": "no bytes from a peer crash a machine or make its tables exceed their bounds",
	"S12": "a reference from before a restart is never honoured after it",
	"S15": "no read lands in a staging page that a scatter still reads, no more pages are used for staging than were " +
		"set aside, and the engine receives its chunks in order and complete",
	"S16": "same seed, same event log; a machine restored from a checkpoint continues alike",
	"S17": "tables stay within bounds and are empty when nothing is open, except for ready chunks, links and entries " +
		"with a time to live",
	"S18": "a peer that dies or starves delays no other peer beyond its share, and the failure of a command fails no " +
		"other command",
	"S19": "after memory was returned to the engine no transfer touches it",
	"S20": "a delivered chunk is kept for its request for the promised time, counted from its landing, and the end of " +
		"that time is reported",
	"S21": "bytes beyond a chunk's valid length are never sent or delivered",
	"S22": "nothing is transferred unless layouts agree",
	"S23": "a page's content comes from one producer and one attempt",
	"S24": "on leased planes no access starts without a lease, and no result is accepted after the lease",
	"S25": "no page is granted to a writer that cannot write there",
	"C1":  "no batch is submitted on two communicators",
	"C2":  "nothing is submitted on a communicator that is retired",
	"C3":  "no epoch number of a link is used twice",
	"C4":  "nothing is submitted under a grant that was revoked before its epoch began",
	"C5":  "the end of each transfer over a communicator is reported once, and each transfer is settled once, with proof",
	"C6":  "a grant is revoked when nothing that began before can reach the pool",
	"C7":  "a transfer fails for an epoch that it broke, and that its target had not retired",
	"C8":  "without proof no epoch follows, and the channel is not closed",
	"S26": "a message means the same in each form that msgpack allows, and a message that repeats a field is refused",
	"S27": "each of two pools has the configured pages, and a reference names the pool of its page",
	"S28": "a message of an identity without the role for it changes nothing and is refused, and no identity is refused " +
		"what its role permits",
	"S29": "a name belongs to the identity that first introduced itself under it, and a message in that name by another " +
		"identity changes nothing and is refused",
	"S30": "a worker's name at directories stays with the identity that proved it",
	"S31": "a chunk of a tenant is received from, sent to and named to none but those that have the tenant",
	"S32": "what a peer of another trust domain sends is given to nobody of this node's domain, and nothing is read back " +
		"from such a peer",
	"S33": "a chunk is used only with the content of which its first engine stated the checksum, and the checksum goes with it",
	"L1":  "each command has exactly one outcome by its deadline plus a grace; held memory is returned",
	"L2":  "pinned pages are returned within the lease and the bound of the revocation",
	"L3": "puts that wait for leased pages continue in order as soon as the pages are returned, and " +
		"no peer delays another peer",
	"L4": "a circuit breaker is open no longer than configured, then the next put is tried",
	"L5": "after crashes transfers succeed again, without restarting the other side",
	"L6": "drain ends with everything released, or reports what is left",
	"L7": "no request starves: requests that wait for pages are served in order within a peer, are overtaken a bounded " +
		"number of times, and never wait for pages that are free; requests to a peer are sent in order",
	"L8": "each request that arrives is answered unless a crash or a disconnect intervenes, and no request that arrives " +
		"unchanged is treated as malformed",
	"L9": "every failure is explained",
	"L10": "a worker tells directories what it has, and asks them what others have, within the configured times and " +
		"limits, and no more often than needed",
	"L11":      "a put reports how its time was spent, without a gap, and as its requests and transfers took it",
	"L12":      "the numbers that a node exports are those of what happened",
	"contract": "machines and models keep the contract between a machine and its driver (effects/doc.go)",
	"panic":    "no machine ever panics because of an impossible state",
}

// Promise returns the sentence that states a property, or "" if the property is unknown.
func Promise(property string) string { return promises[property] }
