/** An authenticator application: prints the code of the otpauth URL in a file, so many periods from now. */
import { readFileSync } from 'node:fs'
import { TOTP, URI } from 'otpauth'

const [file = '', periods = '0'] = process.argv.slice(2)
const application = URI.parse(/otpauth:\S+/.exec(readFileSync(file, 'utf8'))?.[0] ?? '')
if (!(application instanceof TOTP)) throw new Error('no TOTP URL')
process.stdout.write(application.generate({ timestamp: Date.now() + Number(periods) * application.period * 1000 }))
