package remoting

import "errors"

// Errors of the codec. They are wrapped with the facts; test with errors.Is. Every
// one of them means that the connection's byte stream or the peer is broken: there
// is no error frame for it, a RocketMQ server closes the connection.
var (
	// ErrFrameTooShort is returned for a frame that ends before its header length.
	ErrFrameTooShort = errors.New("remoting: frame too short")
	// ErrHeaderLength is returned when the header would reach past the frame's end.
	ErrHeaderLength = errors.New("remoting: header longer than frame")
	// ErrSerializeType is returned for a serialise type other than JSON and ROCKETMQ.
	ErrSerializeType = errors.New("remoting: unknown serialise type")
	// ErrHeader is returned for a header that its serialisation does not allow.
	ErrHeader = errors.New("remoting: malformed header")
)

// Errors of the header and body types. A broker answers these with SYSTEM_ERROR and
// the text, the connection stays.
var (
	// ErrFieldMissing is returned for an absent ext field that the request needs.
	ErrFieldMissing = errors.New("remoting: header field missing")
	// ErrFieldValue is returned for an ext field that does not parse as its type.
	ErrFieldValue = errors.New("remoting: header field value")
	// ErrRequestCode is returned when a header type is asked to read another code.
	ErrRequestCode = errors.New("remoting: header type does not fit the request code")
	// ErrBody is returned for a body that does not parse.
	ErrBody = errors.New("remoting: malformed body")
)
