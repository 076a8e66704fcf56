package protocol

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// nixlMetadata is a worker as a reference worker with one region describes itself.
func nixlMetadata() *NixlMetadata {
	return &NixlMetadata{
		EngineID: []byte("D"), Agent: []byte{1, 2}, BaseAddrs: []uint64{0x7f0000000000}, NumBlocks: 4,
		BlockLens: []uint64{4096}, BlockStrides: []uint64{4096}, Layout: []byte("LBHNC"), BlockSize: 16,
		Backend: []byte("FLASH_ATTN"), PerLogical: 1, DCPSize: 1, PCPSize: 1,
		Regions: NixlRegions{
			NumBlocks: []uint64{4}, GroupIDs: []int64{0}, Names: [][]byte{[]byte("l.0")}, MemTypes: [][]byte{[]byte("VRAM")},
			HasNumBlocks: true, HasGroupIDs: true, HasNames: true, HasMemTypes: true,
		},
	}
}

func pushRegistration() *PushRegistration {
	return &PushRegistration{
		RequestID: []byte("cmpl-u-0-0123abcd"), EngineID: []byte("D"), Host: []byte("10.0.0.2"), Port: 5601, TPSize: 2,
		Blocks: [][]uint64{{3, 127, 128, 65536}},
		Remote: PushProducer{EngineID: []byte("P"), Host: []byte("10.0.0.1"), Port: 5600, TPSize: 1, PPSize: 1},
	}
}

const pushHash = "31b38faaff43619ff44931fdcd4e31ce92ac1e2fb50d9948f50c896e5ee16e1c"

// What msgspec 0.22.0 writes of vLLM 0.32.0's classes, and of its texts. The long ones are named by their SHA-256.
func TestNixlVectors(t *testing.T) {
	two := pushRegistration()
	two.Blocks, two.Remote.TPSize, two.Remote.PPSize = [][]uint64{{3, 127}, {}}, 4, 2
	packed := nixlMetadata()
	packed.Members = [][][]byte{{[]byte("l.0"), []byte("l.1")}}
	packed.Packed = []NixlPackedMember{{[]byte("l.0"), 0, 2048}, {[]byte("l.1"), 2048, 2048}}
	packed.Regions.GroupIDs = []int64{-1}
	meta := nixlMetadata().Append(nil)
	for name, c := range map[string]struct {
		m          Message
		hex, sha   string
		size       int
		begin, end string // in hex
	}{
		"question of rank 0":  {m: &NixlMetadataRequest{}, hex: "93c40c6765745f6d6574615f6d73670000"},
		"question of a stage": {m: &NixlMetadataRequest{PPRank: 1, TPRank: 3}, hex: "93c40c6765745f6d6574615f6d73670103"},
		"clock":               {m: &NixlClock{Seconds: 1.5}, hex: "cb3ff8000000000000"},
		"clock of hours":      {m: &NixlClock{Seconds: 12345.678901}, hex: "cb40c81cd6e63a5c1c"},
		"metadata": {m: nixlMetadata(), size: 389,
			sha: "0102192fe57f501f76fd2d844a7b45daaae33fd851d904dd49051c3dac6e897e", begin: "de0015a9656e67696e655f6964"},
		"packed members": {m: packed,
			end: "ae726567696f6e5f6d656d626572739192a36c2e30a36c2e31b57061636b65645f6d656d6265725f" +
				"6c61796f75747382a36c2e309200cd0800a36c2e3192cd0800cd0800"},
		"hello": {m: &NixlHello{Hash: []byte(pushHash), Metadata: meta}, size: 499,
			sha: "6c2b514b87efb28d9ce96749f42dd8d735d10b57f66114446627081d1dafbdf1"},
		"registration": {m: pushRegistration(), size: 224,
			begin: "505553485f5245473a8baa726571756573745f6964b1636d706c2d752d302d3031323361626364b06465636f64655f656e67696e65" +
				"5f6964a144ab6465636f64655f686f7374a831302e302e302e32ab6465636f64655f706f7274cd15e1ae6465636f64655f74705f73697a65" +
				"02af6c6f63616c5f626c6f636b5f6964739194037fcc80ce00010000b072656d6f74655f656e67696e655f6964a150",
			end: "ae72656d6f74655f74705f73697a6501ae72656d6f74655f70705f73697a6501"},
		"registration of two groups": {m: two, size: 218,
			hex: "505553485f5245473a8baa726571756573745f6964b1636d706c2d752d302d3031323361626364b06465636f64655f656e67696e655f" +
				"6964a144ab6465636f64655f686f7374a831302e302e302e32ab6465636f64655f706f7274cd15e1ae6465636f64655f74705f73697a65" +
				"02af6c6f63616c5f626c6f636b5f6964739292037f90b072656d6f74655f656e67696e655f6964a150ab72656d6f74655f686f7374a831" +
				"302e302e302e31ab72656d6f74655f706f7274cd15e0ae72656d6f74655f74705f73697a6504ae72656d6f74655f70705f73697a6502"},
		"completion": {m: &PushCompletion{RequestID: []byte("cmpl-u-0-0123abcd"), Ranks: 4},
			hex: "636d706c2d752d302d30313233616263643a34"},
		"heartbeat": {m: &PushHeartbeat{RequestIDs: [][]byte{[]byte("cmpl-u-0-89abcdef"), []byte("cmpl-v-0-01234567")}},
			hex: "48423a636d706c2d752d302d38396162636465662c636d706c2d762d302d3031323334353637"},
	} {
		got := c.m.Append(nil)
		is, sum := hex.EncodeToString(got), sha256.Sum256(got)
		switch {
		case c.hex != "" && is != c.hex, c.size > 0 && len(got) != c.size, !strings.HasPrefix(is, c.begin),
			!strings.HasSuffix(is, c.end), c.sha != "" && hex.EncodeToString(sum[:]) != c.sha:
			t.Errorf("%s: %d bytes\n%s", name, len(got), is)
		}
		m := reflect.New(reflect.TypeOf(c.m).Elem()).Interface().(Message)
		if err := m.Decode(got, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if again := m.Append(nil); !bytes.Equal(again, got) {
			t.Errorf("%s: read and written again it is %x", name, again)
		}
	}
}

// The vectors of vLLM 0.32.0, and what Python's json writes of more.
func TestNixlHash(t *testing.T) {
	f := NixlFactors{
		VLLMVersion: "0.32.0", ConnectorVersion: 14, Model: "m", Dtype: "torch.bfloat16", KVHeads: 8, HeadSize: 128,
		HiddenLayers: 32, Backend: "FLASH_ATTN", CacheDtype: "auto", Hybrid: true, TransferMode: "push",
	}
	if got := f.Hash(); got != pushHash {
		t.Errorf("push: %s", got)
	}
	f.TransferMode = "pull"
	if got := f.Hash(); got != "a39f8ad0608a8cdd146c41b9428e5c2e5253310cd36fdac43fe48047955d7506" {
		t.Errorf("pull: %s", got)
	}
	f.VLLMVersion, f.ConnectorVersion = "0.33.0", 15
	if got := f.Hash(); got != "fb0bd576c7f2ebe31ffd99e50e484cc1094e4d9a7ef2f58e1f80db0e1d2e0db5" {
		t.Errorf("0.33.0, pull: %s", got)
	}
	f.TransferMode = "push"
	if got := f.Hash(); got != "e70015a8c1ffbb1a613589b5971ecad53674790510165b9e1e8e8be425b730e9" {
		t.Errorf("0.33.0, push: %s", got)
	}
	f.VLLMVersion, f.ConnectorVersion, f.TransferMode = "0.32.0", 14, "pull"
	f.Model, f.Speculative = "a\"\\/\n\x7fé😀\x01", &NixlSpeculative{Method: "eagle", Model: "d", Revision: "r",
		CacheDtype: "auto", AuxiliaryLayers: []int{2, 16}}
	want := `{"attn_backend_name": "FLASH_ATTN", "cache_dtype": "auto", "dtype": "torch.bfloat16", "head_size": 128, ` +
		`"is_hma_enabled": true, "model": "a\"\\/\n\u007f\u00e9\ud83d\ude00\u0001", "nixl_connector_version": 14, ` +
		`"num_hidden_layers": 32, "num_kv_heads": 8, "speculative_config": {"auxiliary_layer_ids": [2, 16], ` +
		`"code_revision": null, "kv_cache_dtype": "auto", "method": "eagle", "model": "d", "parallel_drafting": false, ` +
		`"revision": "r"}, "transfer_mode": "pull", "vllm_version": "0.32.0"}`
	if got := string(f.appendJSON(nil)); got != want {
		t.Errorf("%s", got)
	}
}

// nixlEdit is the metadata with one field's name and value, as they stand on the wire, replaced.
func nixlEdit(t *testing.T, old, by string) []byte {
	t.Helper()
	b := nixlMetadata().Append(nil)
	o, n := []byte(unquoted(t, old)), []byte(unquoted(t, by))
	if bytes.Count(b, o) != 1 {
		t.Fatalf("%q is there %d times", old, bytes.Count(b, o))
	}
	return bytes.Replace(b, o, n, 1)
}

// unquoted has what stands between angle brackets as hex.
func unquoted(t *testing.T, s string) string {
	t.Helper()
	for strings.Contains(s, "<") {
		from, to := strings.Index(s, "<"), strings.Index(s, ">")
		b, err := hex.DecodeString(s[from+1 : to])
		if err != nil {
			t.Fatal(err)
		}
		s = s[:from] + string(b) + s[to+1:]
	}
	return s
}

// As strict as the reference, and as lenient.
func TestNixlMetadataIsStrict(t *testing.T) {
	for name, c := range map[string]struct {
		old, by string
		code    DecodeCode
		field   string // the first word of old, if it is empty
	}{
		"a float for a number":     {"num_blocks<04aa>", "num_blocks<cb4010000000000000aa>", DecodeWrongType, "num_blocks"},
		"a bool for a number":      {"block_size<10>", "block_size<c3>", DecodeWrongType, "block_size"},
		"a text for bytes":         {"agent_metadata<c4020102>", "agent_metadata<a20102>", DecodeWrongType, ""},
		"bytes for a text":         {"engine_id<a1>D", "engine_id<c401>D", DecodeWrongType, "engine_id"},
		"nil where it must not be": {"block_size<10>", "block_size<c0>", DecodeWrongType, "block_size"},
		"less than nothing":        {"block_size<10>", "block_size<ff>", DecodeOutOfRange, "block_size"},
		"one size of a state":      {"ssm_sizes<920000>", "ssm_sizes<9100>", DecodeLengthMismatch, "ssm_sizes"},
		"three sizes of a state":   {"ssm_sizes<920000>", "ssm_sizes<93000000>", DecodeArrayTooLong, "ssm_sizes"},
		"no engine":                {"engine_id<a1>D", "engine_ix<a1>D", DecodeMissingField, "engine_id"},
		"no kernel blocks per block": {"per_logical_kv_block", "per_logical_kv_blocx", DecodeMissingField,
			"physical_blocks_per_logical_kv_block"},
		"a field twice":        {"dcp_size<01>", "pcp_size<01>", DecodeDuplicateField, "pcp_size"},
		"an array for the map": {"<de0015>", "<dc0015>", DecodeWrongType, ""},
		"a layer packed twice": {"packed_member_layouts<80>", "packed_member_layouts<82>", DecodeTruncated, ""},
	} {
		var m NixlMetadata
		var e *DecodeError
		if err := m.Decode(nixlEdit(t, c.old, c.by), nil); !errors.As(err, &e) || e.Code != c.code ||
			e.Field != cmp.Or(c.field, strings.Split(c.old, "<")[0]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, edit := range map[string][2]string{
		"an unknown field":      {"pcp_size<01>", "pcp_sizf<01>"},
		"nil for a list":        {"region_names<91a3>l.0", "region_names<c0>"},
		"a page length":         {"ple_block_len<c0>", "ple_block_len<cd1000>"},
		"all bits of a number":  {"device_id<00>", "device_id<cfffffffffffffffff>"},
		"a group of all groups": {"region_group_ids<9100>", "region_group_ids<91ff>"},
		"another byte width":    {"block_size<10>", "block_size<cd0010>"},
	} {
		var m NixlMetadata
		if err := m.Decode(nixlEdit(t, edit[0], edit[1]), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A connector of another version is seen by the fields that it sends: one of these sends all of them, and no others.
func TestNixlMetadataOfOtherVersions(t *testing.T) {
	for _, c := range []struct{ old, by, want string }{
		{"pcp_size<01>", "pcp_size<01>", ""},
		{"ple_block_len<c0>", "ple_block_lem<c0>", "an older one: it sends no ple_block_len"},
		{"<de0015a9>engine_id", "<de0016a7>padding<c0a9>engine_id", `a newer one: it sends "padding"`},
		{"<de0015a9>engine_id", "<de0016a0c0a9>engine_id", `a newer one: it sends ""`},
	} {
		m := NixlMetadata{Missing: []byte("before"), Unknown: []byte("before")}
		if err := m.Decode(nixlEdit(t, c.old, c.by), nil); err != nil {
			t.Errorf("%s: %v", c.by, err)
		} else if got := m.VersionMismatch(); got != c.want {
			t.Errorf("%s: %q, want %q", c.by, got, c.want)
		}
	}
}

// Lists that are nil are not those that are empty, and defaults are those of the reference.
func TestNixlMetadataHasDefaults(t *testing.T) {
	whole := nixlMetadata().Append(nil)
	twelve := append([]byte{0x8c}, whole[3:bytes.Index(whole, []byte("region_num_blocks"))-1]...)
	m := *nixlMetadata() // What was there before is gone.
	m.HasPLE, m.DCPSize, m.Packed = true, 3, []NixlPackedMember{{}}
	if err := m.Decode(twelve, nil); err != nil {
		t.Fatal(err)
	}
	if g := m.Regions; m.DCPSize != 1 || m.PCPSize != 1 || m.HasPLE || g.HasNumBlocks || g.HasGroupIDs || g.HasNames ||
		g.HasMemTypes || len(m.Members)+len(m.Packed)+len(g.Names) > 0 {
		t.Errorf("%+v", m)
	}
	m.Regions.HasNames = true
	b := m.Append(nil)
	if !bytes.Contains(b, []byte("region_names\x90")) || !bytes.Contains(b, []byte("region_mem_types\xc0")) {
		t.Errorf("%x", b)
	}
}

// The nearest to what ends a reference's engine or listener, which here is refused and named.
func TestNixlTextsAreNotBelieved(t *testing.T) {
	for text, c := range map[string]struct {
		m    Message
		code DecodeCode
	}{
		"":                                     {&PushCompletion{}, DecodeEmpty},
		"no colon":                             {&PushCompletion{}, DecodeMissingField},
		"r:":                                   {&PushCompletion{}, DecodeOutOfRange},
		"r:x":                                  {&PushCompletion{}, DecodeOutOfRange},
		"r:+4":                                 {&PushCompletion{}, DecodeOutOfRange},
		"r: 4":                                 {&PushCompletion{}, DecodeOutOfRange},
		"r:0":                                  {&PushCompletion{}, DecodeOutOfRange},
		"r:4294967296":                         {&PushCompletion{}, DecodeOutOfRange},
		":4":                                   {&PushCompletion{}, DecodeEmpty},
		"\xff:4":                               {&PushCompletion{}, DecodeInvalidUTF8},
		"HB":                                   {&PushHeartbeat{}, DecodeWrongTag},
		"HB:a,\xff":                            {&PushHeartbeat{}, DecodeInvalidUTF8},
		"PUSH_REG:":                            {&PushRegistration{}, DecodeTruncated},
		"PUSH_REG":                             {&PushRegistration{}, DecodeWrongTag},
		"PUSH_REG:\x80":                        {&PushRegistration{}, DecodeMissingField},
		"PUSH_REG:\x80\x00":                    {&PushRegistration{}, DecodeMissingField},
		"\x93":                                 {&NixlMetadataRequest{}, DecodeTruncated},
		"\x92\x00\x00":                         {&NixlMetadataRequest{}, DecodeLengthMismatch},
		"\x93\xa1x\x00\x00":                    {&NixlMetadataRequest{}, DecodeWrongTag},
		"\x93\xc2\x00\x00":                     {&NixlMetadataRequest{}, DecodeWrongType},
		"\xc0":                                 {&NixlClock{}, DecodeWrongType},
		"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00": {&NixlClock{}, DecodeOutOfRange},
		"\x80":                                 {&NixlHello{}, DecodeMissingField},
	} {
		var e *DecodeError
		if err := c.m.Decode([]byte(text), nil); !errors.As(err, &e) || e.Code != c.code {
			t.Errorf("%q: %v", text, err)
		}
	}
	var got PushCompletion
	if err := got.Decode([]byte("a:b:c:12"), nil); err != nil || string(got.RequestID) != "a:b:c" || got.Ranks != 12 {
		t.Errorf("%+v, %v", got, err)
	}
	var beat PushHeartbeat
	if err := beat.Decode([]byte("HB:,a,,b,"), nil); err != nil || len(beat.RequestIDs) != 2 {
		t.Errorf("%+v, %v", beat, err)
	}
	for _, id := range []string{"", "HB", "HB:1", "PUSH_REG", "PUSH_REG:1", "a,b", "\xff", strings.Repeat("x", 1025)} {
		if CheckNixlRequest([]byte(id), nil) == nil {
			t.Errorf("%q is a request's name", id)
		}
	}
}

// Flat lists of blocks are one group, limits hold over all groups, and what there was before is used again.
func TestRegistrationsNameBlocks(t *testing.T) {
	b := pushRegistration().Append(nil)
	flat := bytes.Replace(b, []byte("local_block_ids\x91\x94"), []byte("local_block_ids\x94"), 1)
	m := PushRegistration{Blocks: [][]uint64{{9, 9}, {9}}}
	if err := m.Decode(flat, nil); err != nil || len(m.Blocks) != 1 || len(m.Blocks[0]) != 4 || m.Blocks[0][3] != 65536 {
		t.Errorf("%+v, %v", m, err)
	}
	lim := DefaultLimits()
	lim.BlockCount = 3
	for _, bytes := range [][]byte{b, flat} {
		var e *DecodeError
		if err := m.Decode(bytes, &lim); !errors.As(err, &e) || e.Code != DecodeArrayTooLong || e.Field != "local_block_ids" {
			t.Errorf("%v", err)
		}
	}
	old := append([]byte("PUSH_REG:\x8a"), b[len("PUSH_REG:")+1:bytes.Index(b, []byte("remote_pp_size"))-1]...)
	if err := m.Decode(old, nil); err != nil || m.Remote.PPSize != 1 || len(old) != 208 {
		t.Errorf("%+v, %v", m, err)
	}
	port := bytes.Replace(b, []byte("decode_port\xcd\x15\xe1"), []byte("decode_port\xce\x00\x01\x00\x00"), 1)
	if err := m.Decode(port, nil); err == nil {
		t.Error("a port of 65536 is one")
	}
}

// drawNixl draws a message of a kind.
func drawNixl(t *rapid.T, of Message) Message {
	text := rapid.Custom(func(t *rapid.T) []byte { return []byte(rapid.StringN(0, 40, 200).Draw(t, "text")) })
	texts, numbers := rapid.SliceOfN(text, 0, 20), rapid.SliceOfN(rapid.Uint64(), 0, 40)
	n := rapid.Uint64()
	switch of.(type) {
	case *NixlMetadataRequest:
		return &NixlMetadataRequest{rapid.Uint32().Draw(t, "pp"), rapid.Uint32().Draw(t, "tp")}
	case *NixlClock:
		return &NixlClock{rapid.Float64Range(-1e300, 1e300).Draw(t, "clock")}
	case *NixlHello:
		return &NixlHello{text.Draw(t, "hash"), rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "metadata")}
	case *PushCompletion:
		return &PushCompletion{drawRequest(t), rapid.Uint32Min(1).Draw(t, "ranks")}
	case *PushHeartbeat:
		m := &PushHeartbeat{}
		for range rapid.IntRange(0, 20).Draw(t, "ids") {
			m.RequestIDs = append(m.RequestIDs, drawRequest(t))
		}
		return m
	case *PushRegistration:
		side := func() PushProducer {
			return PushProducer{text.Draw(t, "engine"), text.Draw(t, "host"), rapid.Uint32Max(portMax).Draw(t, "port"),
				rapid.Uint32Min(1).Draw(t, "tp"), rapid.Uint32Min(1).Draw(t, "pp")}
		}
		d := side()
		return &PushRegistration{RequestID: drawRequest(t), EngineID: d.EngineID, Host: d.Host, Port: d.Port,
			TPSize: d.TPSize, Blocks: rapid.SliceOfN(numbers, 0, 6).Draw(t, "blocks"), Remote: side()}
	}
	m := &NixlMetadata{
		EngineID: text.Draw(t, "engine"), Agent: rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "agent"),
		BaseAddrs: numbers.Draw(t, "base"), DeviceID: n.Draw(t, "device"), NumBlocks: n.Draw(t, "blocks"),
		BlockLens: numbers.Draw(t, "lens"), BlockStrides: numbers.Draw(t, "strides"), Layout: text.Draw(t, "layout"),
		BlockSize: n.Draw(t, "size"), SSMSizes: [2]uint64{n.Draw(t, "ssm"), n.Draw(t, "ssm")},
		Backend: text.Draw(t, "backend"), PerLogical: n.Draw(t, "per"), DCPSize: n.Draw(t, "dcp"), PCPSize: n.Draw(t, "pcp"),
		HasPLE: rapid.Bool().Draw(t, "has ple"), Members: rapid.SliceOfN(texts, 0, 6).Draw(t, "members"),
	}
	if m.HasPLE {
		m.PLEBlockLen = n.Draw(t, "ple")
	}
	g := &m.Regions
	if g.HasNumBlocks = rapid.Bool().Draw(t, "has blocks"); g.HasNumBlocks {
		g.NumBlocks = numbers.Draw(t, "region blocks")
	}
	if g.HasGroupIDs = rapid.Bool().Draw(t, "has groups"); g.HasGroupIDs {
		g.GroupIDs = rapid.SliceOfN(rapid.Int64(), 0, 40).Draw(t, "groups")
	}
	if g.HasNames = rapid.Bool().Draw(t, "has names"); g.HasNames {
		g.Names = texts.Draw(t, "names")
	}
	if g.HasMemTypes = rapid.Bool().Draw(t, "has types"); g.HasMemTypes {
		g.MemTypes = texts.Draw(t, "types")
	}
	layers := rapid.SliceOfNDistinct(text, 0, 8, func(b []byte) string { return string(b) })
	for _, layer := range layers.Draw(t, "packed") {
		m.Packed = append(m.Packed, NixlPackedMember{layer, n.Draw(t, "offset"), n.Draw(t, "page")})
	}
	return m
}

func drawRequest(t *rapid.T) []byte {
	return []byte(rapid.StringMatching(`[a-z:é-]{1,40}`).Draw(t, "request"))
}

// nixlMessages are one of each kind.
func nixlMessages() map[string]Message {
	return map[string]Message{
		"NixlAgentMetadata": &NixlMetadata{}, "NixlHandshakePayload": &NixlHello{}, "PUSH_REG": &PushRegistration{},
		"GET_META": &NixlMetadataRequest{}, "clock": &NixlClock{}, "completion": &PushCompletion{}, "heartbeat": &PushHeartbeat{},
	}
}

// Whatever is written is read, into memory that had another one, and any part of it is refused or is another message.
func TestNixlRoundTrips(t *testing.T) {
	for name, of := range nixlMessages() {
		t.Run(name, func(t *testing.T) {
			used := reflect.New(reflect.TypeOf(of).Elem()).Interface().(Message)
			rapid.Check(t, func(t *rapid.T) {
				b := drawNixl(t, of).Append(nil)
				if err := used.Decode(b, nil); err != nil {
					t.Fatalf("%x: %v", b, err)
				}
				if again := used.Append(nil); !bytes.Equal(again, b) {
					t.Fatalf("%x\nis written again as\n%x", b, again)
				}
				cut := b[:rapid.IntRange(0, len(b)).Draw(t, "cut")]
				if used.Decode(cut, nil) == nil && used.Decode(used.Append(nil), nil) != nil {
					t.Fatalf("%x is read, and not when it is written again", cut)
				}
			})
		})
	}
}
