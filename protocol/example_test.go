package protocol_test

import (
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/protocol"
)

// A receiver looks at what came, and says what is wrong with it.
func Example() {
	request := protocol.AllocRequest{
		Keys:            [][]byte{[]byte("llama@2@0@1f@bfloat16"), []byte("llama@2@0@-2a@bfloat16")},
		Format:          protocol.FormatKV2LTD,
		Shape:           protocol.Shape{Dims: [4]uint32{2, 36, 256, 512}, N: 4},
		Dtype:           protocol.DtypeBFloat16,
		LastChunkTokens: 200,
	}
	frame := request.Append(nil)

	var got protocol.AllocRequest // kept for the next frame: its slices are used again
	if err := got.Decode(frame, nil); err != nil {
		fmt.Println(err)
		return
	}
	page, _ := got.Layout().PageBytes()
	last, _ := got.Layout().ChunkBytes(got.LastChunkTokens)
	fmt.Printf("%d keys, pages of %d bytes, the last with %d valid\n", len(got.Keys), page, last)

	err := got.Decode(frame[:20], nil)
	var refused *protocol.DecodeError
	fmt.Println(errors.As(err, &refused) && refused.Code == protocol.DecodeTruncated)
	fmt.Println(err)
	// Output:
	// 2 keys, pages of 18874368 bytes, the last with 14745600 valid
	// true
	// decode AllocRequest at byte 19: truncated: found 1 bytes to the end, want more; check that the frame arrived whole
}
