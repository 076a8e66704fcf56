package put

// What a message says of each chunk besides its key's bytes: the key's head, and where a page is, in an offer or in the
// answer to an AllocRequest. Beside that it has at most HeadBytes.
const (
	KeyHeadBytes = 3
	PlaceBytes   = 38 + 9 + 9 // a UUID as text, an index, a generation
	HeadBytes    = 1024
)
