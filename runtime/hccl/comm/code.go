package comm

import (
	"fmt"

	"github.com/kvferry/kvferry/runtime/acl"
)

// A Code is an HcclResult: the result of a call of HCCL. Further codes may exist, so keep the number and decide by
// Class.
type Code int32

const (
	success   Code = 0
	codeAgain Code = 20
)

type codeInfo struct {
	name  string // without HCCL_
	class acl.Class
	retry bool
}

// codes holds the codes of HCCL's headers.
var codes = map[Code]codeInfo{
	1:    {name: "E_PARA", class: acl.Bug},
	2:    {name: "E_PTR", class: acl.Bug},
	3:    {name: "E_MEMORY", class: acl.OutOfMemory},
	4:    {name: "E_INTERNAL", class: acl.Link},
	5:    {name: "E_NOT_SUPPORT", class: acl.Unsupported},
	6:    {name: "E_NOT_FOUND", class: acl.Link},
	7:    {name: "E_UNAVAIL", class: acl.Exhausted},
	8:    {name: "E_SYSCALL", class: acl.Device},
	9:    {name: "E_TIMEOUT", class: acl.Link, retry: true},
	10:   {name: "E_OPEN_FILE_FAILURE", class: acl.Config},
	11:   {name: "E_TCP_CONNECT", class: acl.Link, retry: true},
	12:   {name: "E_ROCE_CONNECT", class: acl.Link, retry: true},
	13:   {name: "E_TCP_TRANSFER", class: acl.Link},
	14:   {name: "E_ROCE_TRANSFER", class: acl.Link},
	15:   {name: "E_RUNTIME", class: acl.Device},
	16:   {name: "E_DRV", class: acl.Device},
	17:   {name: "E_PROFILING", class: acl.Bug},
	18:   {name: "E_CCE", class: acl.Bug},
	19:   {name: "E_NETWORK", class: acl.Link},
	20:   {name: "E_AGAIN", class: acl.Link, retry: true},
	21:   {name: "E_REMOTE", class: acl.Link},
	22:   {name: "E_SUSPENDING", class: acl.Link},
	23:   {name: "E_OPRETRY_FAIL", class: acl.Link},
	24:   {name: "E_OOM", class: acl.OutOfMemory},
	1041: {name: "E_IN_STATUS", class: acl.Link},
}

// String returns the name that HCCL's headers give the code, or its number.
func (c Code) String() string {
	if c == success {
		return "HCCL_SUCCESS"
	}
	if info, ok := codes[c]; ok {
		return "HCCL_" + info.name
	}
	return fmt.Sprintf("HcclResult %d", int32(c))
}

// Class returns the class of a code. A code that is in no header has class Link: the communicator is then given up, and
// nothing else. E_INTERNAL has class Link as well: a range outside registered memory may be our own mistake, but the
// peer's memory may just as well be gone.
func (c Code) Class() acl.Class {
	if info, ok := codes[c]; ok {
		return info.class
	}
	return acl.Link
}

// CanRetry reports whether the same call may succeed later: the peer was too late, or something is busy.
func (c Code) CanRetry() bool { return codes[c].retry }
