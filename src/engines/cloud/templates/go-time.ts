/** Times in Go's layouts, which show how the reference time `Mon Jan 2 15:04:05 MST 2006` would be written; in UTC. */

const MONTHS = 'January February March April May June July August September October November December'.split(' ')
const DAYS = 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday'.split(' ')
const PARTS =
  /2006|06|January|Jan|01|Monday|Mon|MST|15|03|04|05|02|_2|PM|pm|Z07:00|Z0700|-07:00|-0700|-07|[.,]0+|[.,]9+|1|2|3|4|5/g

const two = (value: number) => String(value).padStart(2, '0')

const WRITERS: Readonly<Record<string, (date: Date) => string>> = {
  '2006': (date) => String(date.getUTCFullYear()).padStart(4, '0'),
  '06': (date) => two(date.getUTCFullYear() % 100),
  January: (date) => MONTHS[date.getUTCMonth()] ?? '',
  Jan: (date) => (MONTHS[date.getUTCMonth()] ?? '').slice(0, 3),
  '01': (date) => two(date.getUTCMonth() + 1),
  '1': (date) => String(date.getUTCMonth() + 1),
  Monday: (date) => DAYS[date.getUTCDay()] ?? '',
  Mon: (date) => (DAYS[date.getUTCDay()] ?? '').slice(0, 3),
  MST: () => 'UTC',
  '15': (date) => two(date.getUTCHours()),
  '03': (date) => two(date.getUTCHours() % 12 || 12),
  '3': (date) => String(date.getUTCHours() % 12 || 12),
  '04': (date) => two(date.getUTCMinutes()),
  '4': (date) => String(date.getUTCMinutes()),
  '05': (date) => two(date.getUTCSeconds()),
  '5': (date) => String(date.getUTCSeconds()),
  '02': (date) => two(date.getUTCDate()),
  '2': (date) => String(date.getUTCDate()),
  _2: (date) => String(date.getUTCDate()).padStart(2, ' '),
  PM: (date) => (date.getUTCHours() < 12 ? 'AM' : 'PM'),
  pm: (date) => (date.getUTCHours() < 12 ? 'am' : 'pm'),
  'Z07:00': () => 'Z',
  Z0700: () => 'Z',
  '-07:00': () => '+00:00',
  '-0700': () => '+0000',
  '-07': () => '+00',
}

/** `date` in a layout. */
export function formatGoTime(layout: string, date: Date): string {
  return layout.replace(PARTS, (part) => {
    const write = WRITERS[part]
    if (write) return write(date)
    // A fraction of a second: zeros are kept, nines only as far as they say something.
    const digits = String(date.getUTCMilliseconds())
      .padStart(3, '0')
      .padEnd(9, '0')
      .slice(0, part.length - 1)
    const shown = part[1] === '9' ? digits.replace(/0+$/, '') : digits
    return shown === '' ? '' : `${part[0]}${shown}`
  })
}
