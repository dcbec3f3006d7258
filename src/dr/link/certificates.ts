/**
 * Certificates of the link: a certificate authority that each primary creates, its own certificate, and one for each secondary.
 * P-256, version 3, signed with ECDSA and SHA-256.
 *
 * A secondary trusts exactly this authority and the server name of its replication set, so neither another server nor another
 * secondary can impersonate the primary: certificates of secondaries are for clients only. The primary identifies a secondary by the
 * fingerprint of its certificate; the names in the certificate are for readers.
 */
import {
  createSign,
  generateKeyPairSync,
  type KeyObject,
  createPrivateKey,
  randomBytes,
  X509Certificate,
} from 'node:crypto'

export interface CertificateAuthority {
  /** PEM. */
  readonly certificate: string
  /** PKCS 8, DER. */
  readonly key: Uint8Array
}

export interface LinkIdentity {
  /** PEM, both. */
  readonly certificate: string
  readonly key: string
}

/** Identity for the connection to a primary. */
export interface Upstream {
  readonly setId: string
  /** PEM, all three. */
  readonly authority: string
  readonly certificate: string
  readonly key: string
}

const EC_PUBLIC_KEY_SHA256 = '1.2.840.10045.4.3.2'
const COMMON_NAME = '2.5.4.3'
const YEAR_MS = 365.25 * 24 * 3600 * 1000
/** An authority lasts as long as its replication set, which a promotion or `disable` ends; there is no renewal. */
const LIFE_MS = 30 * YEAR_MS
/** Backdating, for peers whose clock is behind. */
const BEFORE_MS = 24 * 3600 * 1000

/** Server name in the certificate of the primary. */
export function serverNameOf(setId: string): string {
  return `primary.${setId}.dr.outpost`
}

/** SHA-256 of the certificate, in hexadecimal digits. */
export function fingerprintOf(certificate: string): string {
  return plainFingerprint(new X509Certificate(certificate).fingerprint256)
}

/** Converts Node's `AB:CD…` to lower case without colons. */
export function plainFingerprint(fingerprint: string): string {
  return fingerprint.replaceAll(':', '').toLowerCase()
}

export async function makeAuthority(setId: string, nowMs: number): Promise<CertificateAuthority> {
  const { publicKey, privateKey } = newKeys()
  const name = `outpost replication set ${setId}`
  const certificate = await certify({ use: 'authority', name, issuer: name, publicKey, signer: privateKey, nowMs })
  return { certificate, key: privateKey.export({ type: 'pkcs8', format: 'der' }) }
}

/** The certificate of the primary (`server`) or of a secondary (`client`). */
export async function makeIdentity(
  authority: CertificateAuthority,
  use: 'server' | 'client',
  setId: string,
  nowMs: number,
): Promise<LinkIdentity> {
  const { publicKey, privateKey } = newKeys()
  const signer = createPrivateKey({ key: Buffer.from(authority.key), type: 'pkcs8', format: 'der' })
  const name = use === 'server' ? serverNameOf(setId) : `secondary of ${setId}`
  const issuer = `outpost replication set ${setId}`
  const certificate = await certify({ use, name, issuer, publicKey, signer, nowMs })
  return { certificate, key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() }
}

function newKeys(): { publicKey: KeyObject; privateKey: KeyObject } {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' })
}

interface CertificateRequest {
  readonly use: 'authority' | 'server' | 'client'
  readonly name: string
  readonly issuer: string
  readonly publicKey: KeyObject
  readonly signer: KeyObject
  readonly nowMs: number
}

async function certify({ use, name, issuer, publicKey, signer, nowMs }: CertificateRequest): Promise<string> {
  const [x509, { AsnConvert, OctetString }] = await Promise.all([
    import('@peculiar/asn1-x509'),
    import('@peculiar/asn1-schema'),
  ])
  const named = (text: string) =>
    new x509.Name([
      new x509.RelativeDistinguishedName([
        new x509.AttributeTypeAndValue({ type: COMMON_NAME, value: new x509.AttributeValue({ utf8String: text }) }),
      ]),
    ])
  const extension = (extnID: string, value: unknown, critical = true) =>
    new x509.Extension({ extnID, critical, extnValue: new OctetString(AsnConvert.serialize(value)) })
  const { KeyUsageFlags: may } = x509
  const isAuthority = use === 'authority'
  const extensions = [
    extension(x509.id_ce_basicConstraints, new x509.BasicConstraints({ cA: isAuthority })),
    extension(
      x509.id_ce_keyUsage,
      new x509.KeyUsage(isAuthority ? may.keyCertSign | may.cRLSign : may.digitalSignature),
    ),
  ]
  if (!isAuthority) {
    const purpose = use === 'server' ? x509.id_kp_serverAuth : x509.id_kp_clientAuth
    extensions.push(extension(x509.id_ce_extKeyUsage, new x509.ExtendedKeyUsage([purpose])))
  }
  if (use === 'server') {
    const names = new x509.SubjectAlternativeName([new x509.GeneralName({ dNSName: name })])
    extensions.push(extension(x509.id_ce_subjectAltName, names, false))
  }
  const algorithm = new x509.AlgorithmIdentifier({ algorithm: EC_PUBLIC_KEY_SHA256 })
  const body = new x509.TBSCertificate({
    version: x509.Version.v3,
    serialNumber: serial(),
    signature: algorithm,
    issuer: named(issuer),
    subject: named(name),
    validity: new x509.Validity({ notBefore: new Date(nowMs - BEFORE_MS), notAfter: new Date(nowMs + LIFE_MS) }),
    subjectPublicKeyInfo: AsnConvert.parse(
      publicKey.export({ type: 'spki', format: 'der' }),
      x509.SubjectPublicKeyInfo,
    ),
    extensions: new x509.Extensions(extensions),
  })
  const signed = createSign('sha256')
    .update(Buffer.from(AsnConvert.serialize(body)))
    .sign(signer)
  const whole = new x509.Certificate({
    tbsCertificate: body,
    signatureAlgorithm: algorithm,
    signatureValue: new Uint8Array(signed).buffer,
  })
  return new X509Certificate(Buffer.from(AsnConvert.serialize(whole))).toString()
}

/** 16 random bytes as a positive integer without leading zeros. */
function serial(): ArrayBuffer {
  const bytes = new Uint8Array(randomBytes(16))
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40
  return bytes.buffer
}
