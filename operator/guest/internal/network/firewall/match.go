package firewall

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Offsets in the IPv4, transport, Ethernet and ARP headers.
const (
	offsetSource      = 12
	offsetDestination = 16
	offsetPort        = 2
	offsetHardware    = 6
	offsetARPSender   = 14
	lengthAddress     = 4
	lengthHardware    = 6
	registerData      = 1
	conntrackKnown    = expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
	conntrackInvalid  = expr.CtStateBitINVALID
)

// match is a part of a rule; a rule is a list of matches with a verdict at the end.
type match []expr.Any

func accept() match { return match{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept}} }

func drop() match { return match{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}} }

func meta(key expr.MetaKey, operator expr.CmpOp, data []byte) match {
	return match{
		&expr.Meta{Key: key, Register: registerData},
		&expr.Cmp{Op: operator, Register: registerData, Data: data},
	}
}

// device pads a name to IFNAMSIZ bytes, which the kernel compares.
func device(name string) []byte {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return data
}

func from(name string) match { return meta(expr.MetaKeyIIFNAME, expr.CmpOpEq, device(name)) }

func to(name string) match { return meta(expr.MetaKeyOIFNAME, expr.CmpOpEq, device(name)) }

func family(protocol byte) match { return meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, []byte{protocol}) }

func etherType(value uint16) match {
	return meta(expr.MetaKeyPROTOCOL, expr.CmpOpEq, binaryutil.BigEndian.PutUint16(value))
}

func transport(protocol byte) match {
	return meta(expr.MetaKeyL4PROTO, expr.CmpOpEq, []byte{protocol})
}

func user(uid uint32) match {
	return meta(expr.MetaKeySKUID, expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(uid))
}

func mark(value uint32) match {
	return meta(expr.MetaKeyMARK, expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(value))
}

func port(protocol byte, number uint16) match {
	return slices.Concat(transport(protocol), match{
		&expr.Payload{DestRegister: registerData, Base: expr.PayloadBaseTransportHeader, Offset: offsetPort, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: registerData, Data: binaryutil.BigEndian.PutUint16(number)},
	})
}

func address(offset uint32, operator expr.CmpOp, one netip.Addr) match {
	return match{
		&expr.Payload{DestRegister: registerData, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: lengthAddress},
		&expr.Cmp{Op: operator, Register: registerData, Data: one.AsSlice()},
	}
}

func prefix(offset uint32, operator expr.CmpOp, one netip.Prefix) match {
	return match{
		&expr.Payload{DestRegister: registerData, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: lengthAddress},
		&expr.Bitwise{SourceRegister: registerData, DestRegister: registerData, Len: lengthAddress,
			Mask: maskOf(one.Bits()), Xor: make([]byte, lengthAddress)},
		&expr.Cmp{Op: operator, Register: registerData, Data: one.Masked().Addr().AsSlice()},
	}
}

func within(offset uint32, set *nftables.Set) match {
	return match{
		&expr.Payload{DestRegister: registerData, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: lengthAddress},
		&expr.Lookup{SourceRegister: registerData, SetName: set.Name, SetID: set.ID},
	}
}

func hardware(one []byte) match {
	return match{
		&expr.Payload{DestRegister: registerData, Base: expr.PayloadBaseLLHeader, Offset: offsetHardware, Len: lengthHardware},
		&expr.Cmp{Op: expr.CmpOpEq, Register: registerData, Data: one},
	}
}

func state(bits uint32) match {
	return match{
		&expr.Ct{Key: expr.CtKeySTATE, Register: registerData},
		&expr.Bitwise{SourceRegister: registerData, DestRegister: registerData, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: registerData, Data: make([]byte, 4)},
	}
}

func maskOf(bits int) []byte {
	return binaryutil.BigEndian.PutUint32(^uint32(0) << (32 - bits))
}
