package oracle

// promises holds the sentences of docs/safety.md by property; TestPromisesAreThoseOfTheDocs compares them.
var promises = map[string]string{
	"S1": "a chunk delivered for a key holds exactly the bytes its producer stored, whole",
	"S2": "no stale delivery: each page is in the generation it was delivered as",
	"S3": "no write lands on a page that is not granted to that very transfer",
	"S4": "no page that a transfer may still touch is given to anybody",
	"S5": "free + in use = total after each step; no double free",
	"S6": "pages leased, counted from the offer and with those being revoked, never exceed " +
		"floor(pages × (1 − reserve)); a batch that can never fit is refused at once",
	"S7": "while a receiver that had no memory is left alone, no request for as many pages goes to it",
	"S8": "what is pinned is released once, however often it is asked",
	"S9": "the proxy hears of a request at most once, and after every chunk is ready, is kept to be read for a stated " +
		"while, or is counted as missing",
	"S10": "at most one reply to a request; malformed ones are answered too",
	"S11": "no bytes of a peer crash a machine or grow it past its bounds",
	"S12": "a reference from before a restart is never honoured after it",
	"S15": "no read lands in a staging page that a scatter still reads, no more pages are used for staging than were " +
		"set " +
		"aside, and the engine is handed its chunks in order, whole",
	"S16": "same seed, same event log",
	"S17": "tables stay within bounds and are empty when nothing is open, but for ready chunks, links and what is " +
		"remembered with a time to live",
	"S18": "a peer that dies or starves delays no other beyond its share, and what fails for one command fails for no " +
		"other",
	"S19": "after memory was returned to the engine no transfer touches it",
	"S20": "a delivered chunk is kept for its request for as long as was said, counted from its landing, and then its " +
		"end is told",
	"S21": "bytes beyond a chunk's valid length are never sent or delivered",
	"S22": "nothing is transferred unless layouts agree",
	"S23": "a page's content comes from one producer and one attempt",
	"S24": "on leased planes no access starts without a lease, none is believed after it",
	"S25": "no page is granted to a writer that cannot write there",
	"C1":  "no batch is in the hands of two communicators",
	"C2":  "nothing is submitted on a communicator that is retired",
	"C3":  "no epoch of a link comes twice",
	"C4":  "nothing is submitted under a grant that was taken back before its epoch began",
	"C5":  "each transfer over a communicator is told its end once, and settled once, with proof",
	"C6":  "a grant is revoked when nothing that began before can reach the pool",
	"C7":  "a transfer fails for an epoch that it broke, and that its target had not retired",
	"C8":  "without proof no epoch follows, and the channel is not closed",
	"S26": "a message means the same in each form that msgpack allows, and one that gives a field twice is refused",
	"S27": "of two pools each has what the configuration says, and a reference names the pool that its page is of",
	"L1":  "each command has exactly one outcome by its deadline plus a grace; held memory is returned",
	"L2":  "pinned pages come back by the lease and the revocation's bound",
	"L3": "puts that wait for leased pages to come back go on as soon as they do, in order, and " +
		"no peer holds up another",
	"L4": "a receiver is left alone no longer than was said, then the next put is tried",
	"L5": "after crashes transfers succeed again, without restarting the other side",
	"L6": "drain ends with everything released, or says what is left",
	"L7": "nobody starves: who waits for pages is served in his order within a peer, passed by others a bounded " +
		"number of times, and never left waiting for what is free; what one peer is asked goes in order",
	"L8": "each request that arrives is answered where no crash or disconnect came between, and none that nobody changed on " +
		"its way is taken for malformed",
	"L9":       "every failure tells",
	"contract": "machines and models keep the contract between a machine and its driver (effects/doc.go)",
	"panic":    "no machine ever finds its own state impossible",
}

// Promise returns the sentence that states a property, or "" if the property is unknown.
func Promise(property string) string { return promises[property] }
